package check

// merge joins the findings of a function that are one mistake: several registers with the same answer up to the same
// place, such as those that longjmp loads. The order of fs stays. Each finding is compared with all before it; a
// function has few.
func merge(fs []Finding) []Finding {
	out := fs[:0]
	for _, f := range fs {
		joined := false
		for k := range out {
			if o := &out[k]; o.sameMistake(&f) {
				o.Register += ", " + f.Register
				o.Directive = "" // it names one register
				o.Never = o.Never && f.Never
				joined = true
				break
			}
		}
		if !joined {
			out = append(out, f)
		}
	}
	return out
}

// sameMistake reports whether two findings differ in the register and the beginning only.
func (f *Finding) sameMistake(o *Finding) bool {
	return f.Register != "" && f.Kind == o.Kind && f.Class == o.Class && f.Severity == o.Severity && f.Start == o.Start &&
		f.End == o.End && f.Actual == o.Actual && f.Claimed == o.Claimed
}

// manyFunctions is how many functions must change a register before it counts as a variable of the program: GCC's
// -ffixed-reg, and register variables outside of functions, as PHP and GHC have them. One or two functions that lose a
// register are a mistake; interpreters have hundreds.
const manyFunctions = 5

// variables makes findings notes where the registers seem to be variables of the program: many functions change them,
// or passedOver says so. saving counts, by register, the functions whose rows save it. The findings stay as notes: a
// table that calls the register unchanged is still wrong for an unwinder that asks for it.
func variables(fs []Finding, saving *[16]int) {
	changed := map[string]map[uint64]bool{} // by register: functions
	is := func(f *Finding) bool {
		return f.Kind == KindClobbered && !f.stated && (f.Class == ClassTable || f.Class == ClassPrivate)
	}
	for i := range fs {
		f := &fs[i]
		if !is(f) {
			continue
		}
		for _, reg := range f.registers() {
			if changed[reg] == nil {
				changed[reg] = map[uint64]bool{}
			}
			changed[reg][f.Start] = true
		}
	}
	for i := range fs {
		f := &fs[i]
		if !is(f) || f.Class == ClassPrivate {
			continue
		}
		many := true
		for _, reg := range f.registers() {
			many = many && (len(changed[reg]) >= manyFunctions || passedOver(reg, saving))
		}
		if many {
			f.Class, f.Severity = ClassVariable, SeverityNote
		}
	}
}

// passedOver reports whether functions save r14 or r15, and none saves reg, which compilers take first.
func passedOver(reg string, saving *[16]int) bool {
	h := map[string]int{"r12": 12, "r13": 13}[reg]
	return h > 0 && saving[h] == 0 && saving[14] >= manyFunctions
}
