package recorder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file finds the processes of --name, --unit and --container in /proc, once, at the start: their children are
// recorded, as of any process, but not others that get the name later.

// Selection chooses processes that run now; at most one field is set.
type Selection struct {
	Name      string // a regular expression for names of processes, as of pgrep(1)
	Unit      string // of systemd
	Container string // an ID, or the beginning of one
}

// Given reports whether a field is set.
func (s *Selection) Given() bool { return *s != Selection{} }

// Check returns what is wrong with the selection, or nil.
func (s *Selection) Check() error {
	const shortestID = 4 // digits: with fewer, a part of another name is too likely to begin so
	if _, err := regexp.Compile(s.Name); err != nil {
		return fmt.Errorf("--name %s: %w", s.Name, err)
	}
	if s.Container != "" && (len(s.Container) < shortestID || strings.Trim(s.Container, "0123456789abcdef") != "") {
		return fmt.Errorf("--container %s: want the hexadecimal ID, or its first %d digits or more", s.Container, shortestID)
	}
	return nil
}

// processes returns the processes below a folder such as /proc that are selected, in order, without this one: to
// record itself would make samples of taking samples.
func (s *Selection) processes(proc string) (list []int, err error) {
	folders, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if s.selects(filepath.Join(proc, f.Name())) {
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	return list, nil
}

// selects reports whether the process of a folder below /proc is selected. One that has ended meanwhile, or that
// another user's mount options hide, is not.
func (s *Selection) selects(folder string) bool {
	if s.Name != "" {
		comm, err := os.ReadFile(filepath.Join(folder, "comm"))
		ok, _ := regexp.Match(s.Name, []byte(strings.TrimSuffix(string(comm), "\n"))) // it was compiled before
		return err == nil && ok
	}
	groups, err := os.ReadFile(filepath.Join(folder, "cgroup"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(strings.FieldsFunc(string(groups), func(r rune) bool {
		return r == '/' || r == '\n' ||
			r == ':'
	}), s.isGroup)
}

// isGroup reports whether a part of a control group's path is the unit's or the container's. Engines name a
// container's group ID (docker with cgroupfs) or, with systemd, docker-ID.scope, libpod-ID.scope or
// cri-containerd-ID.scope.
func (s *Selection) isGroup(part string) bool {
	if s.Unit != "" {
		return part == s.Unit || part == s.Unit+".service"
	}
	part = strings.TrimSuffix(part, ".scope")
	return strings.HasPrefix(part[strings.LastIndexByte(part, '-')+1:], s.Container)
}

// text names the selection.
func (s *Selection) text() string {
	switch {
	case s.Name != "":
		return "--name " + s.Name
	case s.Unit != "":
		return "--unit " + s.Unit
	}
	return "--container " + s.Container
}

// selected returns the options with the processes that are selected, if the options select any. opt stays as it was.
func (opt *Options) selected() (*Options, error) {
	s := &opt.Target.Selection
	if !s.Given() {
		return opt, nil
	}
	list, err := s.processes("/proc")
	if err == nil && len(list) == 0 {
		err = errors.New("no process that runs now")
	}
	if err != nil {
		return nil, &Error{Name: s.text(), Err: err}
	}
	with := *opt
	with.Target.PIDs = list
	return &with, nil
}
