package symbols

import (
	"sync"
	"unsafe"
)

// Budget is the memory that the symbols of several files may take together. It is for files that other processes
// write: nothing but their size bounds what they name. It is safe for concurrent use.
type Budget struct {
	mu   sync.Mutex // protects left
	left int        // bytes
}

// NewBudget returns a budget of n bytes.
func NewBudget(bytes int) *Budget { return &Budget{left: bytes} }

// account is what the symbols of one file take.
type account struct {
	budget *Budget
	taken  int // bytes, to give back if the file is not used
}

// account opens an account for one file.
func (b *Budget) account() *account { return &account{budget: b} }

// add takes the memory of a symbol, and reports whether that much was left. Without it, nothing is taken.
func (a *account) add(s *Symbol) bool {
	n := int(unsafe.Sizeof(*s)) + len(s.Name)
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if n > a.budget.left {
		return false
	}
	a.budget.left -= n
	a.taken += n
	return true
}

// giveBack gives back what was taken: the file is not used.
func (a *account) giveBack() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.left += a.taken
}
