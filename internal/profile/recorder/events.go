package recorder

import (
	"errors"
	"strings"
)

// This file has the values of -e and --filter: pflag calls Set in the order of the command line, which a filter
// depends on. What the names mean is found out later, by package record, as probes need the system.

// Event is an event as the user names it.
type Event struct {
	Name   string // see record.EventByName
	Filter string // of a tracepoint: which samples are taken; "": all
}

// Events are the events of a recording: the value of a flag that may be repeated.
type Events struct {
	List []Event
	last int // index in List of the first that the last flag added; a filter is for those from it on
}

// Set adds events, with commas between them. It takes any text: record.EventByName refuses what is no event.
func (e *Events) Set(text string) error {
	e.last = len(e.List)
	for name := range strings.SplitSeq(text, ",") {
		e.List = append(e.List, Event{Name: name})
	}
	return nil
}

// String returns the names.
func (e *Events) String() string { return strings.Join(e.Names(), ",") }

// Type names the kind of value.
func (e *Events) Type() string { return "strings" }

// Names returns the names of the events.
func (e *Events) Names() (names []string) {
	for _, one := range e.List {
		names = append(names, one.Name)
	}
	return names
}

// Filter is the value of a flag that sets the filter of the events of the last flag before it, as perf does.
type Filter struct{ Events *Events }

// Set sets the filter; the kernel checks the condition when events are opened. An earlier one is replaced, as it is by
// perf record.
func (f Filter) Set(condition string) error {
	if len(f.Events.List) == 0 {
		return errors.New("no events before it")
	}
	for i := f.Events.last; i < len(f.Events.List); i++ {
		f.Events.List[i].Filter = condition
	}
	return nil
}

// String returns nothing: there is no default.
func (f Filter) String() string { return "" }

// Type names the kind of value.
func (f Filter) Type() string { return "condition" }
