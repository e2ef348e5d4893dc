package relocatable

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

const source = `
extern "C" { int puts(const char *); int snprintf(char *, unsigned long, const char *, ...); [[noreturn]] void abort(); }
thread_local int t;
int common[100];
static int helper(int n) { if (n > 3) throw n; return n + ++t; }
struct S { ~S() { puts("gone"); } };
int outer(int n) { S s; try { return helper(n) + common[n]; } catch (int e) { return 1; } }
int caller(int (*f)(int), int n) { if (n < 0) abort(); char b[n]; snprintf(b, n, "%d", f(n)); return b[0] + outer(n); }
int table(int n) { switch (n) { case 0: return outer(1); case 1: return outer(7); case 2: return outer(9); case 3: abort(); case 4: return 12; case 5: return outer(5); } return 0; }
`

// object compiles the source.
func object(t *testing.T, compiler string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.cc"), filepath.Join(dir, "a.o")
	require.NoError(t, os.WriteFile(in, []byte(source), 0o666))
	text, err := exec.Command(compiler, append(flags, "-c", in, "-o", out)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

var variants = map[string][]string{
	"O0":           {"g++", "-O0"},
	"O2":           {"g++", "-O2"},
	"sections":     {"g++", "-O2", "-ffunction-sections", "-fdata-sections"},
	"no pic":       {"g++", "-O1", "-fno-pic"},
	"large":        {"g++", "-O2", "-fpic", "-mcmodel=large"},
	"pic":          {"g++", "-O2", "-fPIC", "-fno-plt"},
	"clang":        {"clang++", "-O2", "-fPIC", "-ffunction-sections"},
	"clang no-pic": {"clang++", "-O1", "-fno-pic"},
}

// linked returns the object, laid out.
func linked(t *testing.T, path string) (image []byte) {
	t.Helper()
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, IsRelocatable(bytes.NewReader(file)))
	image, err = Link(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	return image
}

var address = regexp.MustCompile(`[0-9a-f]{16}`)

// TestRows compares the rows with those that readelf reads from the object itself,
// where each section begins at 0.
func TestRows(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			path := object(t, v[0], v[1:]...)
			image := linked(t, path)
			f, err := elf.NewFile(bytes.NewReader(image))
			require.NoError(t, err)
			o, err := dwarfcfa.NewFile("a.o", bytes.NewReader(image), int64(len(image)))
			require.NoError(t, err)
			s, err := o.Section(dwarfcfa.SourceEHFrame)
			require.NoError(t, err)
			var ours bytes.Buffer
			require.NoError(t, dwarfcfa.DumpRows(&ours, s, nil))
			relative := func(text string) string {
				addr, err := strconv.ParseUint(text, 16, 64)
				require.NoError(t, err)
				for _, s := range f.Sections {
					if s.Flags&elf.SHF_EXECINSTR != 0 && addr >= s.Addr && addr <= s.Addr+s.Size && s.Size > 0 {
						return strings.Repeat("0",
							16-len(strconv.FormatUint(addr-s.Addr, 16))) + strconv.FormatUint(addr-s.Addr, 16)
					}
				}
				return text
			}
			theirs, err := exec.Command("readelf", "-wF", path).Output()
			require.NoError(t, err)
			want, got := rowLines(string(theirs)), rowLines(ours.String())
			for i, line := range got {
				if cut := strings.Index(line, "pc="); cut >= 0 {
					got[i] = line[:cut] + address.ReplaceAllStringFunc(line[cut:], relative)
				} else if address.MatchString(line) && !strings.Contains(line, "CIE") {
					got[i] = relative(line[:16]) + line[16:]
				}
			}
			assert.Greater(t, len(want), 20)
			assert.Equal(t, want, got)
		})
	}
}

// rowLines returns the lines of entries and rows, without trailing spaces.
func rowLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if len(line) > 8 && address.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestTargets follows the calls of the laid-out code: each goes to the function that
// objdump names in the object's own relocations.
func TestTargets(t *testing.T) {
	for name, v := range variants {
		if name == "large" || name == "pic" { // calls through registers and slots
			continue
		}
		t.Run(name, func(t *testing.T) {
			path := object(t, v[0], v[1:]...)
			laid := filepath.Join(t.TempDir(), "laid")
			require.NoError(t, os.WriteFile(laid, linked(t, path), 0o666))
			ours, err := exec.Command("objdump", "-d", "--no-show-raw-insn", laid).Output()
			require.NoError(t, err)
			theirs, err := exec.Command("objdump", "-dr", "--no-show-raw-insn", path).Output()
			require.NoError(t, err)
			named := regexp.MustCompile(`call +[0-9a-f]+ <([^>+]+)>`).FindAllStringSubmatch(string(ours), -1)
			relocated := regexp.MustCompile(`R_X86_64_(?:PLT32|PC32)\s+([\w.]+)-0x4`).FindAllStringSubmatch(string(theirs), -1)
			calls := map[string]int{}
			for _, m := range named {
				calls[m[1]]++
			}
			for _, function := range []string{"abort", "puts", "snprintf", "__cxa_throw", "_Unwind_Resume",
				"__cxa_begin_catch"} {
				n := 0
				for _, m := range relocated {
					if m[1] == function {
						n++
					}
				}
				assert.Positive(t, n, function)
				assert.Equal(t, n, calls[function], function)
			}
		})
	}
}

func TestReadelfAccepts(t *testing.T) {
	laid := filepath.Join(t.TempDir(), "laid")
	require.NoError(t, os.WriteFile(laid, linked(t, object(t, "g++", "-O2", "-ffunction-sections")), 0o666))
	out, err := exec.Command("readelf", "-aW", laid).CombinedOutput()
	require.NoError(t, err)
	assert.NotRegexp(t, `(?i)warning|error:`, string(out))
}

// TestBad has files that are none, and each damaged byte of the headers of one: an
// error or an image, never a panic.
func TestBad(t *testing.T) {
	_, err := Link(strings.NewReader("\x7fELF"), 4)
	require.ErrorIs(t, err, ErrMalformed)
	libc, err := os.ReadFile("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	_, err = Link(bytes.NewReader(libc), int64(len(libc)))
	require.ErrorIs(t, err, ErrNotRelocatable)
	require.False(t, IsRelocatable(bytes.NewReader(libc)))

	file, err := os.ReadFile(object(t, "g++", "-O1", "-g"))
	require.NoError(t, err)
	refused := 0
	for i := range file {
		if i >= 64 && i < len(file)-40*64 {
			continue // contents
		}
		old := file[i]
		for _, b := range testtool.Sweep([]byte{old + 1, 0, 0xff}) {
			file[i] = b
			if image, err := LinkWithLines(bytes.NewReader(file), int64(len(file))); err != nil {
				refused++
			} else {
				require.LessOrEqual(t, len(image), maxGrowth*len(file)+2<<20)
			}
		}
		file[i] = old
	}
	require.Positive(t, refused)
	for n := range len(file) / 64 {
		_, _ = Link(bytes.NewReader(file[:n*64]), int64(n*64))
	}
}

func FuzzLink(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, file []byte) {
		image, err := Link(bytes.NewReader(file), int64(len(file)))
		require.True(t, (image == nil) != (err == nil))
		withLines, err := LinkWithLines(bytes.NewReader(file), int64(len(file)))
		require.True(t, (withLines == nil) != (err == nil))
	})
}
