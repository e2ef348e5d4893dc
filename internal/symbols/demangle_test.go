package symbols

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDemangle has names as perf 6.1 prints them for functions of these symbols.
func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN3foo3barEi":                         "foo::bar",
		"plain":                                 "plain",
		"_ZN1CIXrsLi3ELi1EEE1fEv":               "C<(3)>>(1)>::f",
		"_ZN1CIXrsrsLi3ELi1ELi2EEE1fEv":         "C<((3)>>(1))>>(2)>::f",
		"_ZN1CIXplrsLi3ELi1ELi2EEE1fEv":         "C<((3)>>(1))+(2)>::f",
		"_ZN1CILi1EErsIiEEii":                   "C<1>::operator>><int>",
		"_ZN1AIXgtLi1ELi2EEE1fEv":               "A<((1)>(2))>::f",
		"_ZN1AIS_IS_IiEEE1fEv":                  "A<A<A<int> > >::f",
		"_ZN1a10b$GT$$GT$c17h0123456789abcdefE": "a::b>>c",
		"camlStdlib__List__map_233":             "Stdlib.List.map_233",
		"camlStdlib__List.map_233":              "Stdlib.List.map_233",
		"camlMain__fun_$5b$2fx$2eml$3a1$5d_1":   "Main.fun_[/x.ml:1]_1",
		"camlFoo__bar$27_9":                     "Foo.bar'_9",
		"camlA$2b$2b_12":                        "A++_12",
		"camlFoo__bar$":                         "Foo.bar$",
		"camlFoo__bar$zz":                       "Foo.bar$zz",
		"caml_main":                             "caml_main",
		"camlx":                                 "camlx",
		"caml":                                  "caml",
	} {
		assert.Equal(t, want, Demangle(name), name)
	}
	for _, odd := range []string{")>>(", "()>>(", "(a)>>(", "((a)>>(b)", "(a)>>(b))", "((a)>>(b))", "((a)>>((b)>>(c)))"} {
		assert.NotPanics(t, func() { plainShift(odd) }, odd)
	}
	assert.Equal(t, "<(a)>>((b))>", plainShift("<((a)>>((b)))>"))

}

// TestDemangleParameters has names of functions with their parameters, as c++filt prints them.
func TestDemangleParameters(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN3foo3barEi":                          "(int)",
		"_ZNK4shop7counter3getEi":                "(int) const",
		"_Z3fooIiEiT_":                           "(int)",
		"_ZZN1A1fEiENKUlcE_clEc":                 "(char) const",
		"_ZN3fooEi.cold":                         "(int)",
		"_ZN1CIXrsLi3ELi1EEE1fEv":                "()",
		"_Z1fPFvvE":                              "(void (*)())",
		"_Z1fIiEPFvcET_":                         "",
		"_ZN4core3fmt5write17h0123456789abcdefE": "",
		"_ZTV1A":                                 "",
		"plain":                                  "",
	} {
		assert.Equal(t, want, DemangleParameters(name), name)
	}
}
