package find

import (
	"cmp"
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

// process adds every file that a process has mapped executable, and its vDSO. It needs the rights of a debugger:
// proc(5). Each thing that cannot be found is a problem by itself.
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
			f.vdso(who, proc)
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

// vdso adds the vDSO of the process whose folder proc is. Equal ones are one input.
func (f *finder) vdso(who, proc string) *Input {
	data, err := procfs.VDSO(proc)
	if err != nil {
		f.problem(who, err)
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
