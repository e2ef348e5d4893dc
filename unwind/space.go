package unwind

// Space is the address space of a process: its executable mappings as events change them, in the order of time. One
// goroutine at a time may use it; the Maps that it returns are safe for concurrent use. The zero value is empty.
type Space struct {
	maps    *Maps   // of this moment; nil: none yet
	shared  bool    // a caller of Maps holds maps
	program *Object // the first file that was mapped since the last exec; nil: not known
}

// Program returns the executable, or nil if that is not known. It is the file that was mapped first, or if that is a
// dynamic loader that was run as a command, the program that it has loaded.
func (s *Space) Program() *Object {
	if s.loads() {
		if o := s.maps.program(); o != nil {
			return o
		}
	}
	return s.program
}

// loads reports whether the process runs a loader.
func (s *Space) loads() bool {
	if s.program != nil {
		s.program.find()
	}
	return s.program != nil && s.program.file.loader
}

// Name is Maps.Name of the current mappings, without a look at others where the process runs no loader.
func (s *Space) Name(comm string) string {
	if s.loads() {
		return s.maps.Name(comm)
	}
	return comm
}

// current returns the mappings without giving them away.
func (s *Space) current() *Maps {
	if s.maps == nil {
		s.maps = new(Maps)
	}
	return s.maps
}

// Maps returns the current mappings; later events do not change the result.
func (s *Space) Maps() *Maps {
	s.shared = true
	return s.current()
}

// All returns the current mappings, ascending, which the next event may change.
func (s *Space) All() []Mapping { return s.current().list }

// Find returns the mapping that holds the run-time address addr, or nil. The next event may change it.
func (s *Space) Find(addr uint64) *Mapping { return s.current().Find(addr) }

// SetGenerated says what knows the process's code that lies in no file. Maps from before do not change.
func (s *Space) SetGenerated(g Generated) {
	m := s.current()
	if m.generated == g {
		return
	}
	s.maps, s.shared = &Maps{list: m.list, generated: g}, true // Map changes the list, which the old Maps have, too
}

// Clear drops all mappings.
func (s *Space) Clear() { s.maps, s.shared = &Maps{generated: s.current().generated}, false }

// Fork returns the address space of a child: it starts with the mappings of its parent.
func (s *Space) Fork() Space { return Space{maps: s.Maps(), shared: true, program: s.program} }

// Map records a new mapping of size bytes, which replaces those it overlaps.
// If object is nil, it is not executable.
func (s *Space) Map(start, size, offset uint64, object *Object) {
	if s.program == nil && object != nil && object.IsFile() {
		s.program = object
	}
	end := start + size
	// a record of a damaged file
	if end < start {
		end = ^uint64(0)
	}
	m := s.current()
	if object == nil && !overlaps(m, start, end) { // a mapping without code changes nothing where there is no code
		return
	}
	if s.shared { // the caller of Maps keeps the old one: change a copy
		m = &Maps{list: append(make([]Mapping, 0, len(m.list)+2), m.list...), generated: m.generated}
		s.maps, s.shared = m, false
	}
	var add *Mapping
	if object != nil {
		add = &Mapping{Start: start, End: end, Offset: offset, Object: object}
	}
	m.list = insert(m.list, start, end, add)
}

// overlaps reports whether one of the mappings has an address in [start, end).
func overlaps(m *Maps, start, end uint64) bool {
	if start >= end {
		return false
	}
	if m.Find(start) != nil {
		return true
	}
	for _, o := range m.list {
		if o.Start >= start && o.Start < end {
			return true
		}
	}
	return false
}
