package stack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"
)

// This file reads what a core says: threads with registers, mappings, the signal. Cores of Linux and of gdb's gcore
// have the same notes, in other orders and with other gaps. A core may come from anywhere, so each number in it has a
// bound.

// Types of notes in cores: elf.h.
const (
	ntPrstatus = 1
	ntPrpsinfo = 3
	ntAuxv     = 6
	ntSiginfo  = 0x53494749 // "SIGI"
	ntFile     = 0x46494c45 // "FILE"
)

// Entries of the auxiliary vector: getauxval(3).
const (
	atEntry       = 9
	atSysinfoEhdr = 33
)

// Core is an opened core file. It reads memory from the file when walks need it, so the file must stay open. It is for
// one goroutine at a time.
type Core struct {
	image    *image
	pid      int32                        // in its own namespace
	comm     string                       // at most 15 bytes
	reason   string                       // why it was written
	entry    uint64                       // the program's, at run time; 0: not known
	vdso     uint64                       // address of the vDSO; 0: not known
	threads  []coreThread                 // the one that crashed first
	mappings []procfs.Mapping             // of files, ascending
	notes    []string                     // problems, a line each
	replaced fileID                       // the program, if path was given for it by Use
	path     string                       // of the program, in place of where the core has it; "": not given
	ids      map[fileID][]byte            // build-ids of mapped files
	all      []procfs.Mapping             // of all memory, see mappedFiles
	parts    map[fileID][]*procfs.Mapping // of files, in mappings
	unknown  map[fileID][]*procfs.Mapping // of all: code and headers of files without build-ids
	compared map[compared]procfs.Comparison
	images   map[fileID]*unwind.Object // of files of which the core has the bytes
	room     uint64                    // bytes that images may still take
}

// coreThread is a thread with its registers.
type coreThread struct {
	tid    int32
	signal int      // number of the signal it got last, or 0
	regs   abi.Regs // where it was interrupted
}

// OpenCore reads the headers and notes of a core of size bytes. The error wraps ErrNotCore if it is none.
func OpenCore(file io.ReaderAt, size int64) (*Core, error) {
	c, err := coreOf(file, size)
	if err != nil {
		return nil, err
	}
	c.finish()
	return c, nil
}

// mostImages bounds the files that are made of a core's memory, in bytes: programs that were removed, or
// that a container had.
const mostImages = 256 << 20

// finish notes which parts of a core are missing, and reads the build-ids. It is apart from coreOf, as it needs
// memory, which a core from a pipe has only after it was read to its end.
func (c *Core) finish() {
	if c.image.size < c.image.wanted {
		c.notes = append(c.notes, fmt.Sprintf("the core is cut short: it has %d of %d bytes; stacks may end early",
			c.image.size, c.image.wanted))
	}
	c.all = c.mappedFiles()
	c.ids = buildIDs(c.all, c.image.read)
	c.parts = byFile(c.mappings, func(fileID, *procfs.Mapping) bool { return true })
	c.unknown = byFile(c.all, func(of fileID, m *procfs.Mapping) bool {
		return len(c.ids[of]) == 0 &&
			(m.Exec || m.Offset == 0)
	})
	c.compared = make(map[compared]procfs.Comparison)
	c.images, c.room = make(map[fileID]*unwind.Object), min(c.image.size, mostImages)
}

// coreOf reads the headers and notes of a core whose file has size bytes. Without any thread there is nothing to show:
// an error. Other notes may be missing.
func coreOf(file io.ReaderAt, size int64) (*Core, error) {
	im, err := openImage(file, size)
	if err != nil {
		return nil, err
	}
	c := &Core{image: im}
	// No note of these types is larger; others are skipped.
	bounds := map[uint32]int{ntPrstatus: 4 << 10, ntPrpsinfo: 4 << 10, ntSiginfo: 4 << 10, ntAuxv: 64 << 10,
		ntFile: 256 << 20}
	whole := im.eachNote(func(kind uint32) int {
		if kind == ntFile && c.mappings != nil {
			return 0 // Linux and gdb write one
		}
		return bounds[kind]
	}, c.note)
	switch {
	// without its end, a core may lack the notes: gdb writes them last
	case len(c.threads) == 0 && im.size < im.wanted:
		return nil, fmt.Errorf("core cut short: %d of %d bytes, without any thread", im.size, im.wanted)
	case len(c.threads) == 0:
		return nil, errors.New("core without threads: it has no NT_PRSTATUS note")
	case !whole && im.size >= im.wanted:
		c.notes = append(c.notes, "the notes of the core are cut short: threads or names may be missing")
	}
	return c, nil
}

// note stores what a note says. Notes of a form that is not known are skipped: other systems use the numbers, too.
func (c *Core) note(kind uint32, d []byte) {
	le := binary.LittleEndian
	switch kind {
	case ntPrstatus: // struct elf_prstatus of linux/elfcore.h
		// offsets of pr_cursig, pr_pid and pr_reg, which has 27 registers
		const signal, pid, regs, size = 12, 32, 112, 112 + 27*8
		if len(d) < size || len(c.threads) >= mostThreads {
			return
		}
		t := coreThread{tid: int32(le.Uint32(d[pid:])), signal: int(le.Uint16(d[signal:])), regs: coreRegs(d[regs:])}
		c.threads = append(c.threads, t)
	case ntPrpsinfo: // struct elf_prpsinfo
		// offsets of pr_pid and pr_fname, which has 16 bytes
		const pid, name, size = 24, 40, 16
		if len(d) < name+size {
			return
		}
		c.pid = int32(le.Uint32(d[pid:]))
		comm, _, _ := bytes.Cut(d[name:name+size], []byte{0})
		c.comm = string(comm)
	case ntSiginfo:
		// each thread may have the note; the first is of the thread that crashed
		if c.reason == "" {
			c.reason = signalText(d)
		}
	case ntAuxv:
		for ; len(d) >= 16; d = d[16:] {
			switch le.Uint64(d) {
			case atEntry:
				c.entry = le.Uint64(d[8:])
			case atSysinfoEhdr:
				c.vdso = le.Uint64(d[8:])
			}
		}
	case ntFile:
		c.mapped(d)
	}
}

// coreRegs reads a struct user_regs_struct: sys/user.h. b has at least the 27 registers. The program counter is exact:
// the thread was interrupted there.
func coreRegs(b []byte) abi.Regs {
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	// in the order of the structure; -1: orig_rax, cs, eflags
	for i, r := range [...]int{abi.R15, abi.R14, abi.R13, abi.R12, abi.RBP, abi.RBX, abi.R11, abi.R10, abi.R9, abi.R8,
		abi.RAX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, -1, abi.RIP, -1, -1, abi.RSP} {
		if r >= 0 {
			regs.Reg[r] = binary.LittleEndian.Uint64(b[8*i:])
		}
	}
	return regs
}

// signalText says what a siginfo_t holds, such as "SIGSEGV at address 0x10": sigaction(2). "": it says nothing.
func signalText(d []byte) string {
	// offsets of si_code, of si_addr and of si_pid, which share a union
	const code, address, pid, size = 8, 16, 16, 24
	if len(d) < size {
		return ""
	}
	le := binary.LittleEndian
	text := signalName(int(int32(le.Uint32(d))))
	if text == "" {
		return ""
	}
	// si_code is positive for signals of the kernel; only these five have an address.
	switch from := int32(le.Uint32(d[code:])); {
	case from > 0 && slices.Contains([]string{"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"}, text):
		text += fmt.Sprintf(" at address %#x", le.Uint64(d[address:]))
	case from <= 0:
		text += fmt.Sprintf(" sent by process %d", int32(le.Uint32(d[pid:])))
	}
	return text
}

// signalNames has Linux's signals by number: signal(7).
const signalNames = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU " +
	"XFSZ VTALRM PROF WINCH IO PWR SYS"

// signalName returns the name of a signal; "": there is none. Real-time signals, from 32 on, have numbers alone, as
// the C library keeps some of them.
func signalName(n int) string {
	const last = 64 // SIGRTMAX
	if n <= 0 || n > last {
		return ""
	}
	if names := strings.Fields(signalNames); n <= len(names) {
		return "SIG" + names[n-1]
	}
	return fmt.Sprintf("signal %d", n)
}

// Bounds on the files that a core names. A process has at most some thousand files.
const (
	mostFiles = 16384
	mostPath  = 4096 // bytes: PATH_MAX of linux/limits.h
)

// mapped reads NT_FILE: the number of mappings, the size of a page, then for each start, end and offset in pages,
// then the names (fs/binfmt_elf.c, fill_files_note).
func (c *Core) mapped(d []byte) {
	const head, entry = 16, 24 // bytes
	if len(d) < head {
		return
	}
	le := binary.LittleEndian
	n, page := le.Uint64(d), le.Uint64(d[8:])
	d = d[head:]
	// each has its numbers and at least the zero that ends its name
	if n > uint64(len(d))/(entry+1) {
		c.notes = append(c.notes, fmt.Sprintf("the core lists %d mapped files in %d bytes: they are left out", n, len(d)))
		return
	}
	names := d[n*entry:]
	files := make(map[string]string)
	c.mappings = make([]procfs.Mapping, 0, n)
	nameless := 0
	for ; n > 0; n, d = n-1, d[entry:] {
		raw, rest, ok := bytes.Cut(names, []byte{0})
		if !ok {
			break
		}
		names = rest
		name, known := files[string(raw)]
		if !known {
			if len(files) == mostFiles || len(raw) > mostPath {
				nameless++
				continue
			}
			name = string(raw)
			files[name] = name
		}
		m := procfs.Mapping{Start: le.Uint64(d), End: le.Uint64(d[8:]), Offset: le.Uint64(d[16:]) * page, Name: name}
		if m.Start < m.End {
			c.mappings = append(c.mappings, m)
		}
	}
	if nameless > 0 {
		c.notes = append(c.notes, fmt.Sprintf(
			"mapped memory is taken to be of no file: the core has more than %d names of files, or names of more than %d bytes (%d times)",
			mostFiles, mostPath, nameless))
	}
	sortByStart(c.mappings)
	countFiles(c.mappings)
}

// sortByStart sorts mappings by address, as lookups want them. Those of a damaged core may overlap: the order is kept.
func sortByStart(list []procfs.Mapping) {
	slices.SortStableFunc(list, func(a, b procfs.Mapping) int { return cmp.Compare(a.Start, b.Start) })
}

// file returns the mapping of a file at an address, or nil.
func (c *Core) file(addr uint64) *procfs.Mapping {
	i := sort.Search(len(c.mappings), func(i int) bool { return c.mappings[i].End > addr })
	if i < len(c.mappings) && c.mappings[i].Start <= addr {
		return &c.mappings[i]
	}
	return nil
}

// mappedFiles returns the segments as mappings, with the names of their files. gdb leaves out read-only memory that
// equals its file: such mappings of files count as code.
func (c *Core) mappedFiles() []procfs.Mapping {
	list := make([]procfs.Mapping, 0, len(c.image.segments))
	for _, s := range c.image.segments {
		m := procfs.Mapping{Start: s.start, End: s.end, Offset: s.start, Name: procfs.AnonName, Exec: s.exec}
		if f := c.file(s.start); f != nil {
			m.Name, m.Inode, m.Offset = f.Name, f.Inode, f.Offset+s.start-f.Start
		} else if s.start == c.vdso && c.vdso != 0 {
			m.Name, m.Offset = unwind.VDSOName, 0
		}
		list = append(list, m)
	}
	// What lies in no segment is left out of the core: take it from the file.
	for _, m := range c.mappings {
		i := sort.Search(len(c.image.segments), func(i int) bool { return c.image.segments[i].end > m.Start })
		if i == len(c.image.segments) || c.image.segments[i].start >= m.End {
			m.Exec = true
			list = append(list, m)
		}
	}
	sortByStart(list)
	return list
}

// VDSO returns the image of the vDSO that the process had: the kernel that wrote the core need not be the one that
// runs here. It may be cut short, as the core may be.
func (c *Core) VDSO() ([]byte, error) {
	const most = 1 << 20 // real ones have two pages
	start, end := c.image.region(c.vdso)
	if c.vdso == 0 || end-start > most || start != c.vdso {
		return nil, errors.New("not in the core")
	}
	b := make([]byte, end-start)
	return b[:c.image.read(b, start)], nil
}

// Program returns the name of the file that was executed, by AT_ENTRY of the auxiliary vector; "": it is not known.
func (c *Core) Program() string {
	if f := c.file(c.entry); f != nil && c.entry != 0 {
		return f.Name
	}
	return ""
}

// Use takes the file at path for the program. The error says that the file is another program: by build-id, or where
// the core has none, by the bytes that it has.
func (c *Core) Use(path string, objects *unwind.Objects) error {
	if c.Program() == "" {
		return errors.New("the core does not say which program it is of")
	}
	of := fileOf(c.file(c.entry))
	o := objects.At(of.name, c.ids[of], path)
	different := o.Path() != "" && c.compare(o, of) == procfs.Different
	err := o.Err()
	if different {
		err = errOther
	}
	switch {
	case errors.Is(err, unwind.ErrReplaced) || err == errOther:
		return fmt.Errorf("it is not the program of the core: %w", err)
	case err != nil:
		return err
	}
	c.replaced, c.path = of, path
	return nil
}

// Target takes the stacks of the core's threads, in its order: Linux writes the thread that crashed first. With an
// error, as of ctx, the target has the threads before it.
func (c *Core) Target(ctx context.Context, opt Options) (*Target, error) {
	t := c.target()
	t.named(placeAll(c.all, func(m *procfs.Mapping) *unwind.Object { return c.object(opt.Objects, m) },
		func(addr uint64, b []byte) int { return c.image.read(b, addr) }))
	t.Notes = append(t.Notes, c.unchecked(t.Maps)...)
	// Stacks lie apart, so threads that ask for more than the core has several times share memory, as no real ones do.
	read := budget{c.image.read, leastBudget + 4*c.image.size}
	return t, c.walk(ctx, t, newWalker(&opt), read.read, c.image.region)
}

// leastBudget is how many bytes the walks of a small core may read. Stacks of copies that grow are read several times.
const leastBudget = 1 << 30

// budget is a memory of which a number of bytes can be read in all.
type budget struct {
	memory memory
	left   uint64
}

// read is a memory. Once nothing is left, it reads nothing, and walks end as at memory that is missing.
func (b *budget) read(p []byte, addr uint64) int {
	n := b.memory(p[:min(uint64(len(p)), b.left)], addr)
	b.left -= uint64(max(0, n))
	return n
}

// mostFrames bounds the frames of all threads: 128 MB of addresses.
const mostFrames = 16 << 20

// walk takes the stacks of the core's threads from memory; region returns the mapping of an address. They are added to
// t one by one, so that what was taken before an interruption is there.
func (c *Core) walk(ctx context.Context, t *Target, w *walker, read memory,
	region func(uint64) (start, end uint64)) error {
	frames := 0
	for i, ct := range c.threads {
		if i > 0 && ctx.Err() != nil { // the first crashed: its stack is worth being late
			return ctx.Err()
		}
		if frames > mostFrames {
			t.Notes = append(t.Notes, fmt.Sprintf("%d of %d threads are left out: the others have %d frames", len(c.threads)-i,
				len(c.threads), frames))
			return nil
		}
		th := Thread{TID: ct.tid}
		want := []part{{ct.regs.Reg[abi.RSP], firstCopy}} // the beginning of the stack, larger if the walk needs more
		for want != nil {
			parts := make([]copied, len(want))
			for i, p := range want {
				parts[i] = copyPart(read, region, p)
			}
			want = w.walk(&th, t.Maps, ct.regs, parts)
		}
		frames += len(th.PCs)
		t.Threads = append(t.Threads, th)
	}
	return nil
}

// target returns the core as a target without threads and mappings.
func (c *Core) target() *Target {
	return &Target{PID: cmp.Or(c.pid, c.threads[0].tid), Comm: c.comm,
		Reason: cmp.Or(c.reason, signalName(c.threads[0].signal)), Notes: c.notes}
}

// Registers returns the registers of the first thread, the one that crashed.
func (c *Core) Registers() abi.Regs { return c.threads[0].regs }

// unchecked returns a note about the files of which the core has neither build-id nor memory: another file of the same
// name could be used unnoticed.
func (c *Core) unchecked(maps *unwind.Maps) []string {
	var names []string
	seen := make(map[*unwind.Object]bool)
	for _, m := range maps.All() {
		f := c.file(m.Start)
		if o := m.Object; f != nil && !seen[o] && o.IsFile() && o.Path() != "" &&
			c.compare(o, fileOf(f)) == procfs.NotCompared {
			names = append(names, o.Name)
		}
		seen[m.Object] = true
	}
	if len(names) == 0 {
		return nil
	}
	const shown = 3 // names
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d others", len(names)-shown)
		names = names[:shown]
	}
	return []string{fmt.Sprintf("the core has neither build-id nor memory of %s%s: files of these names are taken to be those that were mapped", strings.Join(names, ", "), more)}
}
