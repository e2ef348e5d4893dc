package prototypes

import (
	"errors"
	"iter"
	"slices"
	"sync"
)

// Prototype is a function with its parameters.
type Prototype struct {
	Name string
	// Parameters are as C declares them, in parentheses.
	Parameters string
	// Declaration is the whole prototype, with what the function returns.
	Declaration string
}

// Table holds the functions of a section. Its methods are safe for concurrent use.
type Table struct {
	types *types
	// several has the names that functions at several addresses of the object have, and how
	// many. nil: not known.
	several map[string]int

	// mu guards what follows and the reader, which tables of a kernel and its modules share.
	mu   *sync.Mutex
	done map[string]string // answers of Parameters, by name: "" for those without one
}

// errAmbiguous is for functions of one name with several prototypes.
var errAmbiguous = errors.New("several prototypes")

// Parameters returns the parameters of the function of a name, or "" if they are not known or
// functions of this name differ in them.
func (t *Table) Parameters(name string) string {
	if t == nil || name == "" {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.done[name]; ok {
		return s
	}
	// The error is not kept: a caller shows parameters only if they are known.
	s, _ := t.one(name, btfFunction.Parameters)
	if t.done == nil {
		t.done = make(map[string]string)
	}
	t.done[name] = s
	return s
}

// one writes what all functions of a name have in common. The caller has t.mu.
func (t *Table) one(name string, write func(btfFunction) (string, error)) (text string, err error) {
	err = try(func() error {
		list, err := t.types.functions(name)
		if err != nil {
			return err
		}
		if len(list) > 0 && len(list) < t.several[name] {
			return errAmbiguous // of one of them nothing is said: which is not known
		}
		for i, f := range list {
			s, err := write(f)
			if err != nil {
				return err
			}
			if i > 0 && s != text {
				return errAmbiguous
			}
			text = s
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// All iterates over the prototypes, by name. A prototype that cannot be written comes as an
// error.
func (t *Table) All() iter.Seq2[Prototype, error] {
	return func(yield func(Prototype, error) bool) {
		// Sorted and without repetitions, so that the output is the same for equal files.
		names := slices.Clone(t.types.graph.order)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if !yield(t.prototype(name)) {
				return
			}
		}
	}
}

// prototype returns the prototype of a name.
func (t *Table) prototype(name string) (Prototype, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Prototype{Name: name}
	var err error
	if p.Parameters, err = t.one(name, btfFunction.Parameters); err == nil {
		p.Declaration, err = t.one(name, btfFunction.Declaration)
	}
	return p, err
}
