package builder

import (
	"fmt"
	"path/filepath"

	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
)

// Job is an input with the paths of its eh_elf.
type Job struct {
	*find.Input
	Name    string   // of the object, for messages
	Target  string   // the file to write
	Links   []string // other names: symbolic links to Target
	inCache string   // the path of Target relative to the cache; "": it is not in the cache
}

// NewJobs gives every input its target, beside it or below dir, unless that is "". Two inputs that would get the same
// target are problems, each with the other's name, and neither becomes a job. Names that
// were not requested are given only if they are free.
func NewJobs(inputs []*find.Input, dir string) (kept []*Job, problems []find.Problem) {
	jobs := make([]*Job, 0, len(inputs))
	owner := make(map[string]*Job) // jobs by the place of their targets
	clash := make(map[*Job]bool)   // jobs that share a target with another one
	for _, in := range inputs {
		j := &Job{Input: in, Name: in.Names[0].Path}
		for _, n := range in.Names {
			if n.Also { // only once all requested names are given
				continue
			}
			target := n.Target(dir)
			if other := j.take(target, owner); other != j {
				clash[j], clash[other] = true, true
				err := fmt.Errorf("two different files would get this name: %s and %s", output.Name(other.Name),
					output.Name(j.Name))
				problems = append(problems, find.Problem{Path: target, Err: err})
			}
		}
		jobs = append(jobs, j)
	}
	kept = jobs[:0]
	for _, j := range jobs {
		if clash[j] {
			continue
		}
		for _, n := range j.Names {
			if n.Also {
				j.take(n.Target(dir), owner)
			}
		}
		kept = append(kept, j)
	}
	return kept, problems
}

// take gives the job one more target, unless another job has it, which it then
// returns.
func (j *Job) take(target string, owner map[string]*Job) *Job {
	place := realPlace(target)
	switch other := owner[place]; {
	case other == j: // another way to the same name
	case other != nil:
		return other
	case j.Target == "":
		owner[place], j.Target = j, target
	default:
		owner[place] = j
		j.Links = append(j.Links, target)
	}
	return j
}

// realPlace names the folder entry that path refers to: two paths get the same
// name if they lead through links to the same entry.
func realPlace(path string) string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	rest := "" // folders that do not exist yet
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest, base)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return filepath.Join(dir, rest, base)
		}
		dir, rest = up, filepath.Join(filepath.Base(dir), rest)
	}
}
