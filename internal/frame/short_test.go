package frame

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShort(t *testing.T) {
	for name, want := range map[string]string{
		"github.com/ehasm/ehasm/asmgen.(*T).f":                                                 "asmgen.(*T).f",
		"github.com/x/y.v2/pkg.F[...]":                                                         "pkg.F[...]",
		"gopkg.in/yaml%2ev3.(*Decoder).Decode":                                                 "yaml%2ev3.(*Decoder).Decode",
		"a.b/slices.sort[go.shape.struct { a.b/c.D; e func(int) [4]int }].func1":               "slices.sort[...].func1",
		"runtime.mallocgc":                                                                     "runtime.mallocgc",
		"std::map<std::__cxx11::basic_string<char, std::char_traits<char> >, int>::operator[]": "std::map<...>::operator[]",
		"std::vector<int>::push_back":                                                          "std::vector<int>::push_back",
		"std::operator<< <std::char_traits<char> >":                                            "std::operator<< <...>",
		"bool operator< <std::char_traits<char> >":                                             "bool operator< <...>",
		"a::operator->": "a::operator->",
		"std::function<int (Foo<int>::*)(char const*)>::f":                   "std::function<...>::f",
		"alloc::vec::Vec<T>::push":                                           "alloc::vec::Vec<T>::push",
		"<alloc::vec::Vec<T,A> as core::iter::Extend<&T>>::extend":           "alloc::vec::Vec<T,A>::extend",
		"<core::iter::Map<Range<usize>, fn(usize) -> u8> as Iterator>::fold": "core::iter::Map<...>::fold",
		"libruby-3.1.so.3.1.2+0x24ebd0":                                      "+0x24ebd0 libruby",
		"libc.so.6+0x3c04f":                                                  "+0x3c04f libc",
		"redis-server+0x64da0":                                               "+0x64da0 redis-server",
		"std.array.Appender!(immutable(char)[]).Appender.put!(char[]).put":   "std.array.Appender!(...).Appender.put!(...).put",
		"std.conv.to!(int).to":                                               "std.conv.to!(int).to",
		"[redis-server]":                                                     "[redis-server]",
		"py::fib:/home/x/fib.py":                                             "py::fib:/home/x/fib.py",
		"LazyCompile:*fib /tmp/x/fib.js:1":                                   "LazyCompile:*fib /tmp/x/fib.js:1",
		"Lcom/foo/Bar;::run":                                                 "Lcom/foo/Bar;::run",
		"a<b":                                                                "a<b",
		"<":                                                                  "<",
		"kworker/0:1":                                                        "kworker/0:1",
		"":                                                                   "",
	} {
		assert.Equal(t, want, Short(name), name)
	}
}
