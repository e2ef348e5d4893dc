package perfdata

// Type is the type of a record: enum perf_event_type of
// include/uapi/linux/perf_event.h, and from 64 on enum perf_user_event_type of
// tools/lib/perf/include/perf/event.h.
type Type uint32

// Record types.
const (
	TypeData        Type = 0 // no record: bytes that follow one
	TypeMmap        Type = 1 // a file is mapped
	TypeLost        Type = 2 // records of a full ring are lost
	TypeComm        Type = 3 // a thread has a new name
	TypeExit        Type = 4 // a thread ends
	TypeThrottle    Type = 5 // sampling was too fast
	TypeFork        Type = 7 // a new thread
	TypeSample      Type = 9
	TypeMmap2       Type = 10 // as 1, with inode or build-id and protection
	TypeLostSamples Type = 13 // samples of the event are lost
	TypeSwitch      Type = 14 // switches in and out
	TypeNamespaces  Type = 16 // namespaces of a thread
	TypeKSymbol     Type = 17 // a kernel symbol appears or goes
	TypeCgroup      Type = 19 // a control group appears

	typeUser          Type = 64 // from here on perf's own
	typeAttr          Type = 64 // an event, in pipe mode
	typeTracingData   Type = 66 // formats of tracepoints follow
	typeBuildID       Type = 67 // build-id of a file
	typeFinishedRound Type = 68 // rounds: see queue
	typeAuxtrace      Type = 71 // AUX data follow
	typeEventUpdate   Type = 78 // name, unit or scale of an event
	typeFeature       Type = 80 // a header feature, in pipe mode
	typeCompressed    Type = 81 // zstd data
	typeCompressed2   Type = 83 // zstd data with their size
)

// Bits of perf_event_header.misc.
const (
	miscCPUMode     = 7       // bits of CPUMode
	miscMmapData    = 1 << 13 // mmap: of data, not code
	miscCommExec    = 1 << 13 // comm: because of an exec
	miscMmapBuildID = 1 << 14 // mmap2: build-id in place of the inode
	miscBuildIDSize = 1 << 15 // build-id: its size is recorded
)

// CPUMode says what kind of code was executing: PERF_RECORD_MISC_CPUMODE_MASK.
type CPUMode uint8

// The modes.
const (
	ModeUnknown CPUMode = iota // the values of PERF_RECORD_MISC_*
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
	Misc   uint16 // flags whose meaning depends on Type
	Size   uint16 // bytes, with the header
}

// Mode returns the cpu mode of the record.
func (h *Header) Mode() CPUMode { return CPUMode(h.Misc & miscCPUMode) }

// SampleID is struct sample_id: when and by which thread a record was written. Fields
// that the event does not have are zero.
type SampleID struct {
	PID, TID int32
	Time     uint64 // ns
	ID       uint64 // of the event, one for each CPU and counter
	StreamID uint64
	CPU      uint32
}

// Record is a *Mmap, *Comm, *Task, *Lost, *Sample, *Namespaces, *KSymbol, *Cgroup or *Other.
type Record interface{ header() *Header }

// Mmap is PERF_RECORD_MMAP and PERF_RECORD_MMAP2.
type Mmap struct {
	Header
	SampleID
	PID, TID         int32
	Addr, Len, PgOff uint64 // address and length in bytes; offset in the file, in bytes
	Name             []byte // path, or a name such as [vdso] or //anon
	Prot             uint32 // MMAP2 only: PROT_*
	Exec             bool   // code: by the protection, or, in MMAP, by the kind of record
	File             FileID
}

// FileID says which file is mapped, whatever lies at its name now: by its build-id, or else by device and inode; MMAP
// has neither.
type FileID struct {
	BuildID    []byte // nil if the record has none
	Maj, Min   uint32 // of the device
	Inode      uint64
	Generation uint64 // of the inode, which may be used again; 0: not known
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
	TaskTime             uint64 // ns, as SampleID.Time
}

// Lost is PERF_RECORD_LOST and PERF_RECORD_LOST_SAMPLES.
type Lost struct {
	Header
	SampleID
	EventID uint64 // PERF_RECORD_LOST only
	Count   uint64 // records, or samples
}

// Namespaces is PERF_RECORD_NAMESPACES: inode numbers of a thread's namespaces, as /proc/PID/ns has them; 0: not known.
type Namespaces struct {
	Header
	SampleID
	PID, TID     int32
	PIDs, Mounts uint64
}

// KSymbol is PERF_RECORD_KSYMBOL: kernel code was added or removed.
type KSymbol struct {
	Header
	SampleID
	Addr     uint64 // run-time address; Len in bytes
	Len      uint32
	SymType  uint16 // BPF, or out of line code
	SymFlags uint16 // bit 0: removed
	Name     []byte
}

// Code returns the symbol's range, its name, and whether the code was removed.
func (k *KSymbol) Code() (start, end uint64, name string, removed bool) {
	return k.Addr, k.Addr + uint64(k.Len), string(k.Name), k.SymFlags&1 != 0
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

// header is for records of any type; embedding Header gives them the method.
func (h *Header) header() *Header { return h }

// records holds one record of each type, which decode reuses.
type records struct {
	buildIDs bool // mappings of any event may have build-ids

	spaces  Namespaces
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
	// Records of the kernel end with struct sample_id, if sample_id_all is set.
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
		// Memory of the record before is reused: callers copy what they keep.
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
	case TypeNamespaces:
		r := &recs.spaces
		*r = Namespaces{Header: h, SampleID: id, PID: int32(c.u32()), TID: int32(c.u32())}
		r.decode(&c)
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
	// Other records may be of later kernels.
	default:
		recs.other = Other{Header: h, Data: raw[headerSize:]}
		return &recs.other, nil
	}
	if c.bad {
		return nil, ErrTruncated
	}
	return rec, nil
}

// decode decodes the list: a number of entries, each with device and inode, in the order of PERF_NR_NAMESPACES' enum.
func (r *Namespaces) decode(c *cursor) {
	const pids, mounts, most = 3, 5, 64
	for i := range min(c.u64(), most) {
		c.u64()
		switch inode := c.u64(); i {
		case pids:
			r.PIDs = inode
		case mounts:
			r.Mounts = inode
		}
	}
}

// decode decodes the fields. Without buildIDs, PERF_RECORD_MISC_MMAP_BUILD_ID means nothing: the kernel leaves it set
// in a record that it has written for another reader's event before.
func (m *Mmap) decode(c *cursor, buildIDs bool) {
	m.PID, m.TID = int32(c.u32()), int32(c.u32())
	m.Addr, m.Len, m.PgOff = c.u64(), c.u64(), c.u64()
	// MMAP says by a flag that it is of data; MMAP2 has the protection as well.
	m.Exec = m.Misc&miscMmapData == 0
	if m.Type == TypeMmap2 {
		// The union of struct perf_record_mmap2: inode, or build-id.
		id := c.bytes(24)
		switch {
		case len(id) == 0:
		case buildIDs && m.Misc&miscMmapBuildID != 0:
			// Byte 0 is the size; 3 bytes are padding.
			m.File.BuildID = id[4 : 4+min(id[0], 20)]
		default:
			d := cursor{data: id}
			m.File.Maj, m.File.Min, m.File.Inode, m.File.Generation = d.u32(), d.u32(), d.u64(), d.u64()
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
	// The fields in the order of struct sample_id; those of other bits are not there.
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
