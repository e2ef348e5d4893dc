package find

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/procfs"
)

// VDSOName is the name that the dynamic loader gives the kernel's vDSO.
const VDSOName = "linux-vdso.so.1"

// maxVDSO bounds what is read as a vDSO from another process.
const maxVDSO = 1 << 20 // bytes; real ones have two pages

// process adds every file that a process has mapped executable, and its vDSO.
func (f *finder) process(pid int) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	who := "process " + strconv.Itoa(pid)
	maps, err := procfs.MappingsIn(proc)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.problem(who, cmp.Or(procfs.NotShown(int32(pid)), errors.New("no such process")))
		return
	case err != nil:
		f.problem(who, withoutPath(err))
		return
	}
	added := false
	// A file has several executable mappings if a part of it was remapped; once is enough.
	type file struct {
		device string
		inode  uint64
	}
	seen := make(map[file]bool)
	for _, m := range maps {
		if m.Name == "[vdso]" {
			f.vdso(who, filepath.Join(proc, "mem"), m)
			continue
		}
		if !m.Exec || m.Inode == 0 || !strings.HasPrefix(m.Name, "/") {
			continue
		}
		added = true
		key := file{m.Device, m.Inode}
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
func (f *finder) mapped(who, proc string, m procfs.Mapping) {
	name, deleted := strings.CutSuffix(m.Name, procfs.Deleted)
	direct := filepath.Join(proc, "map_files", fmt.Sprintf("%x-%x", m.Start, m.End))
	want, directErr := os.Stat(direct)
	// is returns the file at path if it is the one that is mapped. Without map_files only inodes
	// are compared, not devices: /proc/PID/maps may show another device number than stat(2), as on
	// Btrfs.
	is := func(path string) fs.FileInfo {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if directErr == nil && os.SameFile(info, want) || directErr != nil && inodeOf(info) == m.Inode {
			return info
		}
		return nil
	}
	if !deleted {
		for _, path := range []string{name, filepath.Join(proc, "root") + name} {
			if info := is(path); info != nil {
				in := f.add(path, filepath.Base(name), info)
				in.Mapped = true
				in.addSoname(path, info)
				return
			}
		}
	}
	if directErr != nil {
		f.problem(name, fmt.Errorf("deleted or replaced since %s mapped it: %w", who, withoutPath(directErr)))
		return
	}
	f.res.Notes = append(f.res.Notes, Problem{name,
		fmt.Errorf("deleted or replaced since %s mapped it: taking the file that is mapped", who)})
	if !want.Mode().IsRegular() {
		return
	}
	// What is left is reachable only as /proc/PID/map_files, which is opened while the process
	// lives.
	id := idOf(direct, want)
	if f.inputs[id] == nil {
		in := &Input{Path: direct, Size: want.Size()}
		f.inputs[id] = in
		f.res.Inputs = append(f.res.Inputs, in)
	}
	base := filepath.Base(name)
	f.inputs[id].Mapped = true
	f.inputs[id].addName(Name{Path: name, Rel: base, Next: base})
}

// ownVDSO adds the vDSO of this process, which is the running kernel's.
func (f *finder) ownVDSO() {
	maps, err := procfs.MappingsIn("/proc/self")
	if err != nil {
		f.problem(VDSOName, err)
		return
	}
	for _, m := range maps {
		if m.Name == "[vdso]" {
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
func (f *finder) vdso(who, mem string, m procfs.Mapping) *Input {
	if m.End-m.Start > maxVDSO {
		f.problem(who, fmt.Errorf("vDSO of %d bytes", m.End-m.Start))
		return nil
	}
	data := make([]byte, m.End-m.Start)
	h, err := os.Open(mem)
	if err == nil {
		_, err = h.ReadAt(data, int64(m.Start))
		h.Close()
	}
	if err != nil {
		f.problem(who, fmt.Errorf("vDSO: %w", err))
		return nil
	}
	// Its content is its identity, since it lies in no file.
	id := fileID{name: fmt.Sprintf("%x", sha256.Sum256(data))}
	if in := f.inputs[id]; in != nil {
		return in
	}
	in := &Input{Data: data, Size: int64(len(data)), Names: []Name{{Path: VDSOName, Rel: VDSOName, Next: VDSOName}}}
	f.inputs[id] = in
	f.res.Inputs = append(f.res.Inputs, in)
	return in
}

// RunningVDSO returns the vDSO of the running kernel.
func RunningVDSO(ctx context.Context) ([]byte, error) {
	found := Find(ctx, nil, Options{VDSO: true})
	for _, in := range found.Inputs {
		if in.Data != nil {
			return bytes.Clone(in.Data), nil
		}
	}
	for _, p := range found.Problems {
		return nil, p.Err
	}
	return nil, errors.New("no vDSO")
}
