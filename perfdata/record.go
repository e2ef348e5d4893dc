package perfdata

// Type is the type of a record: enum perf_event_type of
// include/uapi/linux/perf_event.h, and from 64 on enum perf_user_event_type of
// tools/lib/perf/include/perf/event.h.
type Type uint32

// Record types.
const (
	TypeData        Type = 0 // no record: bytes that follow one
	TypeMmap        Type = 1
	TypeLost        Type = 2
	TypeComm        Type = 3
	TypeExit        Type = 4
	TypeThrottle    Type = 5
	TypeFork        Type = 7
	TypeSample      Type = 9
	TypeMmap2       Type = 10
	TypeLostSamples Type = 13
	TypeSwitch      Type = 14
	TypeKSymbol     Type = 17
	TypeCgroup      Type = 19

	typeUser          Type = 64
	typeAttr          Type = 64
	typeTracingData   Type = 66
	typeBuildID       Type = 67
	typeFinishedRound Type = 68
	typeAuxtrace      Type = 71
	typeEventUpdate   Type = 78
	typeFeature       Type = 80
	typeCompressed    Type = 81
	typeCompressed2   Type = 83
)

// Bits of perf_event_header.misc.
const (
	miscCPUMode     = 7
	miscMmapData    = 1 << 13
	miscCommExec    = 1 << 13
	miscMmapBuildID = 1 << 14
	miscBuildIDSize = 1 << 15
)

// CPUMode says what kind of code was executing: PERF_RECORD_MISC_CPUMODE_MASK.
type CPUMode uint8

// The modes.
const (
	ModeUnknown CPUMode = iota
	ModeKernel
	ModeUser
	ModeHypervisor
	ModeGuestKernel
	ModeGuestUser
)

// Header is the part that every record has.
type Header struct {
	Offset int64 // in the file; of the compressed record, for what was in one
	Type   Type
	Misc   uint16
	Size   uint16
}

// Mode returns the cpu mode of the record.
func (h *Header) Mode() CPUMode { return CPUMode(h.Misc & miscCPUMode) }

// SampleID is struct sample_id: when and by which thread a record was written. Fields
// that the event does not have are zero.
type SampleID struct {
	PID, TID int32
	Time     uint64 // ns
	ID       uint64
	StreamID uint64
	CPU      uint32
}

// Record is a *Mmap, *Comm, *Task, *Lost, *Sample, *KSymbol, *Cgroup or *Other.
type Record interface{ header() *Header }

// Mmap is PERF_RECORD_MMAP and PERF_RECORD_MMAP2.
type Mmap struct {
	Header
	SampleID
	PID, TID         int32
	Addr, Len, PgOff uint64
	Name             []byte
	Prot             uint32 // MMAP2 only: PROT_*
	Exec             bool
	BuildID          []byte // nil if the record has none
	Maj, Min         uint32 // MMAP2 without build-id
	Inode            uint64
	Generation       uint64 // of the inode, which may be used again; 0: not known
}

// Comm is PERF_RECORD_COMM: a thread has a new name.
type Comm struct {
	Header
	SampleID
	PID, TID int32
	Name     []byte
	Exec     bool // because of an exec
}

// Task is PERF_RECORD_FORK and PERF_RECORD_EXIT.
type Task struct {
	Header
	SampleID
	PID, PPID, TID, PTID int32
	TaskTime             uint64
}

// Lost is PERF_RECORD_LOST and PERF_RECORD_LOST_SAMPLES.
type Lost struct {
	Header
	SampleID
	EventID uint64 // PERF_RECORD_LOST only
	Count   uint64
}

// KSymbol is PERF_RECORD_KSYMBOL: kernel code was added or removed.
type KSymbol struct {
	Header
	SampleID
	Addr     uint64
	Len      uint32
	SymType  uint16
	SymFlags uint16
	Name     []byte
}

// Cgroup is PERF_RECORD_CGROUP: the path of a control group, from its hierarchy's root.
type Cgroup struct {
	Header
	SampleID
	Number uint64 // as Sample.Cgroup has it
	Path   []byte
}

// Other is any record that is not decoded.
type Other struct {
	Header
	Data []byte
}

func (h *Header) header() *Header { return h }

// records holds one record of each type, which decode reuses.
type records struct {
	buildIDs bool // mappings of any event may have build-ids

	mmap    Mmap
	comm    Comm
	task    Task
	lost    Lost
	sample  Sample
	ksymbol KSymbol
	cgroup  Cgroup
	other   Other
}

// decode decodes the bytes of a record, including its header, into one of recs.
// ev is its event; it may be nil except for samples.
func (recs *records) decode(h Header, raw []byte, ev *Event) (Record, error) {
	c := cursor{data: raw[headerSize:]}
	if h.Type == TypeSample {
		s := &recs.sample
		s.Header = h
		return s, s.decode(&c, ev)
	}
	var id SampleID
	if ev != nil && ev.idSize > 0 && h.Type < typeUser {
		if ev.idSize > len(c.data) {
			return nil, ErrTruncated
		}
		tail := cursor{data: c.data[len(c.data)-ev.idSize:]}
		id = decodeSampleID(&tail, ev.SampleType)
		c.data = c.data[:len(c.data)-ev.idSize]
	}
	var rec Record
	switch h.Type {
	case TypeMmap, TypeMmap2:
		m := &recs.mmap
		*m = Mmap{Header: h, SampleID: id}
		m.decode(&c, recs.buildIDs || ev != nil && ev.hasBuildIDs())
		rec = m
	case TypeComm:
		r := &recs.comm
		*r = Comm{Header: h, SampleID: id, Exec: h.Misc&miscCommExec != 0}
		r.PID, r.TID = int32(c.u32()), int32(c.u32())
		r.Name = c.text()
		rec = r
	case TypeFork, TypeExit:
		r := &recs.task
		*r = Task{Header: h, SampleID: id}
		r.PID, r.PPID, r.TID, r.PTID = int32(c.u32()), int32(c.u32()), int32(c.u32()), int32(c.u32())
		r.TaskTime = c.u64()
		rec = r
	case TypeLost, TypeLostSamples:
		r := &recs.lost
		*r = Lost{Header: h, SampleID: id}
		if h.Type == TypeLost {
			r.EventID = c.u64()
		}
		r.Count = c.u64()
		rec = r
	case TypeKSymbol:
		r := &recs.ksymbol
		*r = KSymbol{Header: h, SampleID: id, Addr: c.u64(), Len: c.u32(), SymType: c.u16(), SymFlags: c.u16()}
		r.Name = c.text()
		rec = r
	case TypeCgroup:
		r := &recs.cgroup
		*r = Cgroup{Header: h, SampleID: id, Number: c.u64()}
		r.Path = c.text()
		rec = r
	default:
		recs.other = Other{Header: h, Data: raw[headerSize:]}
		return &recs.other, nil
	}
	if c.bad {
		return nil, ErrTruncated
	}
	return rec, nil
}

// decode decodes the fields. Without buildIDs, PERF_RECORD_MISC_MMAP_BUILD_ID means nothing: the kernel leaves it set in
// a record that it has written for another reader's event before.
func (m *Mmap) decode(c *cursor, buildIDs bool) {
	m.PID, m.TID = int32(c.u32()), int32(c.u32())
	m.Addr, m.Len, m.PgOff = c.u64(), c.u64(), c.u64()
	m.Exec = m.Misc&miscMmapData == 0
	if m.Type == TypeMmap2 {
		id := c.bytes(24)
		switch {
		case len(id) == 0:
		case buildIDs && m.Misc&miscMmapBuildID != 0:
			m.BuildID = id[4 : 4+min(id[0], 20)]
		default:
			d := cursor{data: id}
			m.Maj, m.Min, m.Inode, m.Generation = d.u32(), d.u32(), d.u64(), d.u64()
		}
		const protExec = 4
		m.Prot = c.u32()
		c.u32() // flags
		m.Exec = m.Exec || m.Prot&protExec != 0
	}
	m.Name = c.text()
}

// decodeSampleID reads struct sample_id.
func decodeSampleID(c *cursor, t SampleType) SampleID {
	var id SampleID
	if t&SampleTID != 0 {
		id.PID, id.TID = int32(c.u32()), int32(c.u32())
	}
	if t&SampleTime != 0 {
		id.Time = c.u64()
	}
	if t&SampleIDField != 0 {
		id.ID = c.u64()
	}
	if t&SampleStreamID != 0 {
		id.StreamID = c.u64()
	}
	if t&SampleCPU != 0 {
		id.CPU = c.u32()
		c.u32()
	}
	if t&SampleIdentifier != 0 {
		id.ID = c.u64()
	}
	return id
}
