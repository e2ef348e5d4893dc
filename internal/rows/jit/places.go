package jit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"
)

// Places knows where processes write the names of code that they make: perf-PID.map in /tmp, and jit-PID.dump. PID and
// folders are those of the process's namespaces. It is safe for concurrent use.
type Places struct {
	live    bool     // processes exist while they are asked about
	folders []string // of maps, besides a process's own /tmp

	mu    sync.Mutex // for what is below
	byPID map[int32]*place
	order []int32 // of known, as they came
}

// place is where a process writes.
type place struct {
	pid  int32           // in its own namespace
	seen bool            // it has run since it was asked about
	tmp  *os.File        // its /tmp, which is out of reach once it has ended; nil: the one here
	dump symbols.Written // its jitdump file; Path is "": there is none
	user uint32          // whose it is
	from time.Time       // when it began; zero: not known
}

// mostPlaces is how many processes are remembered: each may hold a descriptor.
const mostPlaces = 256

// NewPlaces returns places of processes, which exist while they are asked about if live is set. Maps are also looked
// for in folders.
func NewPlaces(live bool, folders ...string) *Places {
	return &Places{live: live, folders: folders, byPID: make(map[int32]*place)}
}

// Close closes the folders that were kept open.
func (p *Places) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pl := range p.byPID {
		pl.close()
	}
	clear(p.byPID)
}

func (pl *place) close() {
	pl.tmp.Close() // nil is an error
	pl.dump.File.Close()
}

// See looks where a process writes, which is known by its number here.
func (p *Places) See(pid int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(pid)
}

// look is See, and returns the place.
func (p *Places) look(pid int32) *place {
	pl := &place{pid: procfs.OwnPID(pid), seen: true, tmp: openTmp(pid), user: symbols.UserOf(pid),
		from: procfs.Started(pid)}
	if pl.pid != pid || pl.tmp != nil || pl.user != 0 || p.byPID[pid] != nil { // others need not be remembered
		p.add(pid, pl)
	}
	return pl
}

// SeeIf is See if the process of this number has these PID and mount namespaces now: then it is one that had the number
// and the namespaces before.
func (p *Places) SeeIf(pid int32, pids, mounts uint64) {
	if procfs.Namespace(pid, "pid") == pids && procfs.Namespace(pid, "mnt") == mounts && pids != 0 && mounts != 0 {
		p.See(pid)
	}
}

// add keeps the place of a process in place of an older one. Each holds a descriptor, so beyond mostPlaces the oldest
// goes.
func (p *Places) add(pid int32, pl *place) {
	if old := p.byPID[pid]; old != nil {
		old.close()
		p.order = slices.DeleteFunc(p.order, func(other int32) bool { return other == pid })
	} else if len(p.order) == mostPlaces {
		p.byPID[p.order[0]].close()
		delete(p.byPID, p.order[0])
		p.order = p.order[1:]
	}
	p.byPID[pid], p.order = pl, append(p.order, pid)
}

// openTmp opens a process's /tmp if that is not the one here; a link is not followed.
func openTmp(pid int32) *os.File {
	path := fmt.Sprintf("/proc/%d/root/tmp", procfs.Living(pid))
	there, err := os.Lstat(path)
	if err != nil || !there.IsDir() {
		return nil
	}
	if here, err := os.Stat("/tmp"); err == nil && os.SameFile(here, there) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err != nil || !os.SameFile(st, there) {
		f.Close()
		return nil
	}
	return f
}

// IsDump reports whether a mapping is a jitdump file, by its name.
func IsDump(name string) bool {
	number, ok := strings.CutPrefix(filepath.Base(name), "jit-")
	number, dump := strings.CutSuffix(number, ".dump")
	return ok && dump && number != "" && number[0] != '0' && strings.Trim(number, "0123456789") == ""
}

// Dump notes the jitdump file that a process has mapped at [start, end), and returns it.
func (p *Places) Dump(pid int32, name string, start, end uint64) symbols.Written {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.find(pid)
	if pl == nil {
		pl = &place{pid: pid}
	}
	if p.byPID[pid] == nil {
		p.add(pid, pl)
	}
	own := filepath.Base(name) == fmt.Sprintf("jit-%d.dump", pl.pid)
	if pl.dump.Path != "" && !own { // one from before a fork
		return pl.dump
	}
	pl.dump.File.Close()
	pl.dump = pl.written(name, pid)
	if pl.seen {
		pl.dump.File = mappedAt(fmt.Sprintf("/proc/%d/map_files/%x-%x", procfs.Living(pid), start, end), name)
	}
	return pl.dump
}

// Learn notes the jitdump files among the mappings of a process.
func (p *Places) Learn(pid int32, maps *unwind.Maps) {
	for _, m := range maps.All() {
		if IsDump(m.Object.Name) {
			p.Dump(pid, m.Object.Name, m.Start, m.End)
		}
	}
}

// mappedAt opens the file that a link of proc_pid_map_files(5) leads to, if the name here does not lead to it; else it
// returns nil.
func mappedAt(link, name string) *os.File {
	path, err := os.Readlink(link)
	there, err2 := os.Stat(link)
	if err != nil || err2 != nil || strings.TrimSuffix(filepath.Base(path), procfs.Deleted) != filepath.Base(name) {
		return nil
	}
	if here, err := os.Stat(name); err == nil && os.SameFile(here, there) {
		return nil
	}
	f, _ := input.Open(link) // nil: the name in its namespace is left
	return f
}

// written returns the file that the process, whose number here is pid, knows by a name.
func (pl *place) written(name string, pid int32) symbols.Written {
	w := symbols.Written{Path: name, Name: name, PID: pid, User: pl.user}
	if rest, ok := strings.CutPrefix(name, "/tmp/"); ok && pl.tmp != nil {
		w.Root, w.Path = fmt.Sprintf("/proc/self/fd/%d", pl.tmp.Fd()), "/"+rest
	} else if pl.tmp != nil {
		w.Root = fmt.Sprintf("/proc/%d/root", procfs.Living(pid))
	}
	return w
}

// find returns where a process writes; nil: that is not known.
func (p *Places) find(pid int32) *place {
	if p.byPID[pid] == nil && p.live {
		return p.look(pid)
	}
	return p.byPID[pid]
}

// Dumped returns the jitdump file of a process, and whether there is one.
func (p *Places) Dumped(pid int32) (symbols.Written, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl := p.byPID[pid]; pl != nil && pl.dump.Path != "" {
		return pl.dump, true
	}
	return symbols.Written{}, false
}

// Maps returns where the map of a process may be, in order of search.
func (p *Places) Maps(pid int32) (list []symbols.Written) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.find(pid)
	if pl == nil {
		pl = &place{pid: pid}
	}
	if pl.tmp != nil || pl.pid != pid {
		list = append(list, pl.written(fmt.Sprintf("/tmp/perf-%d.map", pl.pid), pid))
	}
	for _, folder := range p.folders {
		path := filepath.Join(folder, fmt.Sprintf("perf-%d.map", pid))
		list = append(list, symbols.Written{Path: path, Name: path, PID: pid, User: pl.user})
	}
	for i := range list {
		list[i].After = pl.from
	}
	return list
}
