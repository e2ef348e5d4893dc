package symbols

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestDemangle has names as perf 6.1 prints them for functions of these symbols, apart from parentheses of shifts.
func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN3foo3barEi":                         "foo::bar",
		"_ZN3foo3barEi@plt":                     "foo::bar@plt",
		"_ZNSt14error_categoryD2Ev@plt":         "std::error_category::~error_category@plt",
		"_RNvC6_123foo3bar@plt":                 "123foo::bar@plt",
		"plain@plt":                             "plain@plt",
		"camlStdlib__List__map_233@plt":         "Stdlib.List.map_233@plt",
		"plain":                                 "plain",
		"_ZN1CIXrsLi3ELi1EEE1fEv":               "C<((3)>>(1))>::f",
		"_ZN1CIXrsrsLi3ELi1ELi2EEE1fEv":         "C<((((3)>>(1)))>>(2))>::f",
		"_ZN1CIXplrsLi3ELi1ELi2EEE1fEv":         "C<(((3)>>(1)))+(2)>::f",
		"_ZN1CILi1EErsIiEEii":                   "C<1>::operator>><int>",
		"_ZN1AIXgtLi1ELi2EEE1fEv":               "A<((1)>(2))>::f",
		"_ZN1AIS_IS_IiEEE1fEv":                  "A<A<A<int> > >::f",
		"_ZN1a10b$GT$$GT$c17h0123456789abcdefE": "a::b>>c",
		"_ZN3std3sys9backtrace28__rust_begin_short_backtrace17hb1eb796a26225ec9E": "std::sys::backtrace::__rust_begin_short_backtrace",
		"_ZN1a2_b1_17h0123456789abcdefE.llvm.12":                                  "a::_b::_",
		"_ZN12_$LT$a$GT$_b1c17h0123456789abcdefE":                                 "<a>_b::c",
		// 9 bytes end in the hash
		"_ZN1a9_b17h0123456789abcdefE":        "_ZN1a9_b17h0123456789abcdefE",
		"camlStdlib__List__map_233":           "Stdlib.List.map_233",
		"camlStdlib__List.map_233":            "Stdlib.List.map_233",
		"camlMain__fun_$5b$2fx$2eml$3a1$5d_1": "Main.fun_[/x.ml:1]_1",
		"camlFoo__bar$27_9":                   "Foo.bar'_9",
		"camlA$2b$2b_12":                      "A++_12",
		"camlFoo__bar$":                       "Foo.bar$",
		"camlFoo__bar$zz":                     "Foo.bar$zz",
		"caml_main":                           "caml_main",
		"camlx":                               "camlx",
		"caml":                                "caml",
	} {
		assert.Equal(t, want, Demangle(name), name)
	}
}

// TestDemangleBombs: names that package demangle would make of more bytes than memory has are cut, and say so.
func TestDemangleBombs(t *testing.T) {
	cpp, rust := testtool.NameBombs(2)
	assert.Equal(t, "f<a<int, int>, a<a<int, int>, a<int, int> >, a<a<a<int, int>, a<int, int> >, a<a<int, int>, a<int, int> > > >", Demangle(cpp))
	assert.Equal(t, "a::f::<(isize, isize), ((isize, isize), (isize, isize)), (((isize, isize), (isize, isize)), ((isize, isize), (isize, isize)))>", Demangle(rust))
	for _, levels := range []int{33, 100} {
		cpp, rust := testtool.NameBombs(levels)
		for _, name := range []string{cpp, rust, strings.Replace(cpp, "Evv", "EvS1_", 1),
			strings.Replace(cpp, "_Z", "_GLOBAL__I__Z", 1)} {
			got := Demangle(name)
			assert.Len(t, got, longestName, name)
			assert.True(t, strings.HasSuffix(got, cutMark), name)
			assert.Empty(t, DemangleParameters(name), name)
		}
	}
	for _, name := range []string{
		strings.Repeat("x", 10*longestName), "caml" + strings.Repeat("X", 10*longestName),
		"_" + strings.Repeat("ü", longestName),
		"_Z1fI" + strings.Repeat("P", 10*longestName) + "iEvv", // a stack frame for each pointer
	} {
		got := Demangle(name)
		assert.LessOrEqual(t, len(got), longestName)
		assert.Greater(t, len(got), longestName-utf8.UTFMax)
		assert.True(t, strings.HasSuffix(got, cutMark))
		assert.True(t, utf8.ValidString(got))
	}
	whole := strings.Repeat("x", longestName-1)
	assert.Equal(t, whole, Demangle(whole))
}

// TestDemanglePacks: names whose packs package demangle would expand for minutes, before it looks
// at the length, stay as they are.
func TestDemanglePacks(t *testing.T) {
	bomb := func(n int) string {
		r := strings.Repeat
		return "1fIJ" + r("i", n) + "EJ" + r("c", n) + "EEv" + r("Dp1AIT_", n) + "Dp1BIT_T0_E" + r("E", n)
	}
	assert.Equal(t, "f<int, char>(A<int, B<int, char> >)::g", Demangle("_ZZ"+bomb(1)+"E1gv"))
	for _, name := range []string{"_ZZ" + bomb(40) + "E1gv", "_GLOBAL__I__Z" + bomb(40),
		strings.ReplaceAll("_ZZ"+bomb(40)+"E1gv", "Dp", "sp")} {
		assert.Equal(t, name, Demangle(name))
	}
	assert.Equal(t, "(A<int, B<int, char> >)", DemangleParameters("_Z"+bomb(1)))
	assert.Empty(t, DemangleParameters("_Z"+bomb(40)))
	long := "_Z1f" + strings.Repeat("I1A", 300) + strings.Repeat("E", 300) + "vDp1B"
	assert.NotEqual(t, long, Demangle(long), "one expansion")
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
