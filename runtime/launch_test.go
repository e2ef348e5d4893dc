//go:build unix

package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ehasmPreload runs 'ehasm preload' with the kit's library and an empty cache. It returns what
// was said on stdout and on stderr; the figures are left out of the latter unless wanted.
func ehasmPreload(t *testing.T, k *kit, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(k.path("ehasm"), append([]string{"preload", "--library", k.path("libehunwind-preload.so")},
		args...)...)
	cmd.Env = append(os.Environ(), append([]string{"XDG_CACHE_HOME=" + t.TempDir(), "EHASM_PATH=", "EHASM_STATS="},
		env...)...)
	var out, errors strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errors
	require.NoError(t, cmd.Run(), "%s%s", &out, &errors)
	return out.String(), errors.String()
}

func compileTo(t *testing.T, path, command string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	args := append(strings.Fields(command), "-o", path)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestPreloadLauncher: a command that puts its own library into the program that its
// arguments name has eh_elfs for both.
func TestPreloadLauncher(t *testing.T) {
	k := makePreload(t)
	dir := t.TempDir()
	library := compileTo(t, filepath.Join(dir, "lib", "tracer", "libtracer.so"),
		"gcc -O2 -shared -fPIC -D_GNU_SOURCE testdata/preload/tracer.c")
	program := compileTo(t, filepath.Join(dir, "traced"), "gcc -O2 testdata/preload/traced.c")
	script := filepath.Join(dir, "bin", "tracer")
	require.NoError(t, os.MkdirAll(filepath.Dir(script), 0o755))
	require.NoError(t, os.WriteFile(script,
		[]byte("#!/bin/sh\nLD_PRELOAD="+library+"${LD_PRELOAD:+:$LD_PRELOAD} exec \"$@\"\n"), 0o755))
	stats := []string{"EHASM_STATS=1"}

	out, figures := ehasmPreload(t, k, stats, script, program, "x")
	assert.Equal(t, "with an argument\n", out)
	assert.Contains(t, figures, "backtrace 1/0")

	// Where the library cannot be known, that is said.
	other := compileTo(t, filepath.Join(dir, "hidden", "libtracer.so"),
		"gcc -O2 -shared -fPIC -D_GNU_SOURCE testdata/preload/tracer.c -Wl,-soname,other")
	require.NoError(t, os.WriteFile(script,
		[]byte("#!/bin/sh\nLD_PRELOAD="+other+"${LD_PRELOAD:+:$LD_PRELOAD} exec \"$@\"\n"), 0o755))
	want := "ehunwind: traced: none of 1 stacks was taken over: there is no eh_elf for " + other +
		"; 'ehasm build --cache PATH' makes one, or says why not\n"
	_, said := ehasmPreload(t, k, nil, script, program)
	assert.Equal(t, want, said)
	_, said = ehasmPreload(t, k, nil, "-q", script, program)
	assert.Empty(t, said)
	_, figures = ehasmPreload(t, k, stats, "--with", other, script, program)
	assert.Contains(t, figures, "backtrace 1/0")
}

// TestPreloadNothing: a program that takes no stacks says so, if it is not one that starts others.
func TestPreloadNothing(t *testing.T) {
	k := makePreload(t)
	program := compileTo(t, filepath.Join(t.TempDir(), "traced"), "gcc -O2 testdata/preload/traced.c")
	out, said := ehasmPreload(t, k, nil, program)
	assert.Equal(t, "without\n", out)
	const nothing = ": nothing was taken over: no call of backtrace, _Unwind_Backtrace, unw_backtrace or unw_step came here, and no exception " +
		"(none does with EHASM_EXCEPTIONS=0, a static libgcc, or no eh_elf for libgcc)\n"
	assert.Equal(t, "ehunwind: traced"+nothing, said)
	_, said = ehasmPreload(t, k, nil, "env", program)
	assert.Empty(t, said)

	// Exceptions that it does not see are not said to be none.
	const throws = "g++ -O1 eh/testdata/thrown.cc"
	_, said = ehasmPreload(t, k, []string{"EHASM_EXCEPTIONS=0"}, compileTo(t, filepath.Join(t.TempDir(), "off"), throws))
	assert.Equal(t, "ehunwind: off"+nothing, said)
	_, said = ehasmPreload(t, k, nil, compileTo(t, filepath.Join(t.TempDir(), "static"),
		throws+" -static-libgcc -static-libstdc++"))
	assert.Equal(t, "ehunwind: static"+nothing, said)
}

// TestPreloadAddressSanitizer: its runtime refuses to start a program where it is not the
// first object.
func TestPreloadAddressSanitizer(t *testing.T) {
	k := makePreload(t)
	program := compileTo(t, filepath.Join(t.TempDir(), "sanitized"),
		"gcc -O1 -fsanitize=address -D_GNU_SOURCE testdata/preload/traced.c testdata/preload/tracer.c")
	for _, env := range [][]string{{"EHASM_STATS=1"}, {"EHASM_STATS=1", "LD_PRELOAD=libasan.so.8"}} {
		env = append(env, "ASAN_OPTIONS=detect_leaks=0")
		out, figures := ehasmPreload(t, k, env, program)
		assert.Equal(t, "without\n", out)
		assert.Regexp(t, `backtrace [1-9]\d*/0`, figures)
		assert.NotContains(t, figures, "does not come first")
	}
}

// TestPreloadAddressSanitizerStarted: nor where it is started by a program that has been started
// under the preload, and finds there what it finds elsewhere. A program with its own defaults is
// bounded: it must be started with the runtime in LD_PRELOAD.
func TestPreloadAddressSanitizerStarted(t *testing.T) {
	k := makePreload(t)
	dir := t.TempDir()
	const compile = "g++ -O1 -fsanitize=address testdata/preload/sanitized.cc"
	program, own := compileTo(t, filepath.Join(dir, "sanitized"), compile), compileTo(t, filepath.Join(dir, "own"),
		compile+" -DOWN_DEFAULTS")
	run := func(set, program string) (out string) {
		out, _ = ehasmPreload(t, k, []string{"EHASM_STATS=1", "ASAN_OPTIONS=detect_leaks=0"}, "--with", program, "--",
			"sh", "-c", set+program+" 2>&1; echo $?")
		return out
	}
	out := run("", program)
	assert.Contains(t, out, "some frames, 100 caught\n")
	assert.Regexp(t, `backtrace 1/0(.*\n)+0\n$`, out, "taken over")
	out = run("", program+" overflow")
	assert.Contains(t, out, "some frames, 100 caught\n")
	assert.Contains(t, out, "heap-buffer-overflow")
	assert.Regexp(t, `\n1\n$`, out)
	assert.Contains(t, run("", own), "does not come first")
	out, _ = ehasmPreload(t, k, []string{"ASAN_OPTIONS=detect_leaks=0"}, own)
	assert.Contains(t, out, "some frames, 100 caught\n", "started by ehasm itself")
	assert.Regexp(t, `some frames, 100 caught\n(.*\n)+0\n$`, run("LD_PRELOAD=libasan.so.8:$LD_PRELOAD ", own))
}

// TestPreloadThrows: a program whose exceptions are taken over is told nothing, with a build-id or without; one whose
// exceptions are not is told why.
func TestPreloadThrows(t *testing.T) {
	k := makePreload(t)
	dir := t.TempDir()
	for _, flag := range []string{"--build-id", "--build-id=none"} {
		taken := compileTo(t, filepath.Join(dir, "taken"), "g++ -O1 eh/testdata/thrown.cc -Wl,"+flag)
		_, said := ehasmPreload(t, k, nil, taken)
		assert.Empty(t, said)
		_, said = ehasmPreload(t, k, []string{"EHASM_STATS=1"}, taken)
		assert.Contains(t, said, "exceptions: on, 100 throws taken over, 0 handed over, ")
	}

	none := compileTo(t, filepath.Join(dir, "none"), "g++ -O1 eh/testdata/thrown.cc")
	eh := buildFor(t, k, filepath.Join(dir, "eh"), "--deps", none)
	require.NoError(t, os.Remove(filepath.Join(eh, "none.eh_elf.so")))
	env := []string{"EHASM_PRELOADED=0", "LD_PRELOAD=" + k.path("libehunwind-preload.so") + ":" +
		k.path("libgcc/libgcc_s.so.1")}
	assert.Equal(t, "ehunwind: none: none of its exceptions was taken over: there is no eh_elf for "+none+
		"; 'ehasm build --cache PATH' makes one, or says why not\n", k.mustRun(t, eh, env, none))
	said := k.mustRun(t, eh, append(env, "EHASM_STATS=1"), none)
	assert.Contains(t, said, "exceptions: on, 0 throws taken over, 100 handed over, ")
	assert.Regexp(t, "the last throw was handed over at 0x[0-9a-f]+ in "+none+", which has no eh_elf\n", said)

	// Nothing to find an eh_elf by.
	bare := compileTo(t, filepath.Join(dir, "bare"),
		"gcc -O1 testdata/preload/traced.c -Wl,--build-id=none,--no-eh-frame-hdr")
	_, said = ehasmPreload(t, k, nil, bare)
	assert.Contains(t, said, "ehasm: "+bare+": neither a build-id nor an .eh_frame_hdr to find it by in the cache; 'ehasm build' puts its eh_elf beside it\n")
}

// TestPreloadNewerLibgcc: a program that needs a version which our libgcc_s lacks starts without it.
func TestPreloadNewerLibgcc(t *testing.T) {
	k := makePreload(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	newer := compileTo(t, filepath.Join(dir, "libgcc_s.so.1"),
		"gcc -shared -fPIC -Wl,-soname,libgcc_s.so.1,--version-script="+
			write("map", "GCC_3.0 { };\nGCC_14.0.0 { global: newer; };\n")+" "+write("newer.c",
			"int newer(void) { return 42; }\n"))
	program := compileTo(t, filepath.Join(dir, "program"), "gcc "+write("program.c",
		"#include <stdio.h>\nint newer(void);\nint main(void) { return printf(\"%d\\n\", newer()) < 0; }\n")+" "+newer)
	out, said := ehasmPreload(t, k, []string{"LD_LIBRARY_PATH=" + dir}, program)
	assert.Equal(t, "42\n", out)
	assert.Contains(t, said, k.path("libgcc/libgcc_s.so.1")+": exceptions are left to the system's libgcc: "+program+
		" needs GCC_14.0.0, which this one lacks\n")
	out, said = ehasmPreload(t, k, []string{"LD_LIBRARY_PATH=" + dir}, "-q", "env", program)
	assert.Equal(t, "42\n", out)
	assert.Empty(t, said)
}
