package find

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// VDSOName is the name that the dynamic loader gives the kernel's vDSO.
const VDSOName = "linux-vdso.so.1"

const maxVDSO = 1 << 20 // bytes; real ones have two pages

// mapping is a line of /proc/N/maps: proc_pid_maps(5).
type mapping struct {
	start, end uint64
	exec       bool
	dev        string
	inode      uint64
	path       string // or a name in brackets; empty if anonymous
	deleted    bool   // the kernel says that the name was removed
}

func (m mapping) span() string { return fmt.Sprintf("%x-%x", m.start, m.end) }

// readMaps reads the mappings of a process; proc is its folder in /proc.
func readMaps(proc string) ([]mapping, error) {
	b, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return nil, err
	}
	var maps []mapping
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m, ok := parseMapping(lines.Text()); ok {
			maps = append(maps, m)
		}
	}
	return maps, lines.Err()
}

func parseMapping(line string) (mapping, bool) {
	var field [5]string
	for i := range field {
		var ok bool
		if field[i], line, ok = strings.Cut(line, " "); !ok && i < 4 {
			return mapping{}, false
		}
	}
	lo, hi, _ := strings.Cut(field[0], "-")
	start, err1 := strconv.ParseUint(lo, 16, 64)
	end, err2 := strconv.ParseUint(hi, 16, 64)
	inode, err3 := strconv.ParseUint(field[4], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return mapping{}, false
	}
	m := mapping{start: start, end: end, exec: strings.Contains(field[1], "x"), dev: field[3], inode: inode}
	m.path, m.deleted = strings.CutSuffix(strings.TrimLeft(line, " "), " (deleted)")
	m.path = strings.ReplaceAll(m.path, `\012`, "\n")
	return m, true
}

// process adds every file that a process has mapped executable, and its vDSO.
func (f *finder) process(pid int) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	who := "process " + strconv.Itoa(pid)
	maps, err := readMaps(proc)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.problem(who, errors.New("no such process"))
		return
	case err != nil:
		f.problem(who, withoutPath(err))
		return
	}
	added := false
	seen := make(map[mapping]bool)
	for _, m := range maps {
		if m.path == "[vdso]" {
			f.vdso(who, filepath.Join(proc, "mem"), m)
			continue
		}
		if !m.exec || m.inode == 0 || !strings.HasPrefix(m.path, "/") {
			continue
		}
		added = true
		key := mapping{dev: m.dev, inode: m.inode}
		if !seen[key] {
			seen[key] = true
			f.mapped(who, proc, m)
		}
	}
	if !added {
		f.problem(who, errors.New("has no file mapped executable"))
	}
}

// mapped adds the file of an executable mapping. Its name may by now refer to
// another file, or none, or be one in another mount namespace. So mapped looks
// for the file under the name, then in the process's root folder, then through
// /proc/N/map_files, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
func (f *finder) mapped(who, proc string, m mapping) {
	direct := filepath.Join(proc, "map_files", m.span())
	want, directErr := os.Stat(direct)
	is := func(path string) fs.FileInfo {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if directErr == nil && os.SameFile(info, want) || directErr != nil && inodeOf(info) == m.inode {
			return info
		}
		return nil
	}
	if !m.deleted {
		for _, path := range []string{m.path, filepath.Join(proc, "root") + m.path} {
			if info := is(path); info != nil {
				in := f.add(path, filepath.Base(m.path), info)
				in.Mapped = true
				in.addSoname(path, info)
				return
			}
		}
	}
	if directErr != nil {
		f.problem(m.path, fmt.Errorf("deleted or replaced since %s mapped it: %w", who, withoutPath(directErr)))
		return
	}
	f.res.Notes = append(f.res.Notes, Problem{m.path,
		fmt.Errorf("deleted or replaced since %s mapped it: taking the file that is mapped", who)})
	if !want.Mode().IsRegular() {
		return
	}
	id := idOf(direct, want)
	if f.inputs[id] == nil {
		in := &Input{Path: direct, Size: want.Size()}
		f.inputs[id] = in
		f.res.Inputs = append(f.res.Inputs, in)
	}
	base := filepath.Base(m.path)
	f.inputs[id].Mapped = true
	f.inputs[id].addName(Name{Path: m.path, Rel: base, Next: base})
}

// ownVDSO adds the vDSO of this process, which is the running kernel's.
func (f *finder) ownVDSO() {
	maps, err := readMaps("/proc/self")
	if err != nil {
		f.problem(VDSOName, err)
		return
	}
	for _, m := range maps {
		if m.path == "[vdso]" {
			if in := f.vdso(VDSOName, "/proc/self/mem", m); in != nil {
				in.Given = true
			}
			return
		}
	}
	f.problem(VDSOName, errors.New("this kernel maps none"))
}

// vdso adds the vDSO that m maps, read from the memory file mem. Equal ones are
// one input.
func (f *finder) vdso(who, mem string, m mapping) *Input {
	if m.end <= m.start || m.end-m.start > maxVDSO {
		f.problem(who, fmt.Errorf("vDSO of %d bytes", m.end-m.start))
		return nil
	}
	data := make([]byte, m.end-m.start)
	h, err := os.Open(mem)
	if err == nil {
		_, err = h.ReadAt(data, int64(m.start))
		h.Close()
	}
	if err != nil {
		f.problem(who, fmt.Errorf("vDSO: %w", err))
		return nil
	}
	id := fileID{name: fmt.Sprintf("%x", sha256.Sum256(data))}
	if in := f.inputs[id]; in != nil {
		return in
	}
	in := &Input{Data: data, Size: int64(len(data)), Names: []Name{{Path: VDSOName, Rel: VDSOName, Next: VDSOName}}}
	f.inputs[id] = in
	f.res.Inputs = append(f.res.Inputs, in)
	return in
}
