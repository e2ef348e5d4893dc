package find

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// This file finds what would run: a command as execvp(3) finds it, the interpreters of scripts as the kernel does, and
// whether the dynamic loader would preload a library into it.

// Reasons why a command cannot be run.
var (
	ErrCommandNotFound = errors.New("not found")
	ErrNotExecutable   = errors.New("not executable")

	// errUnsearchable says that a folder on the way is closed to this user. Shells do
	// not find the command there; execvp(3) would say EACCES.
	errUnsearchable = fmt.Errorf("permission denied: %w", ErrNotExecutable)
)

// Command returns the file that execvp(3) would run for a command: the name
// itself if it holds a slash, otherwise the first executable file of that name
// in the folders of searchPath, the value of PATH, that this user may search. The error is
// ErrCommandNotFound, ErrNotExecutable, or one of the file system.
func Command(name, searchPath string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	if name == "" {
		return "", ErrCommandNotFound
	}
	failure := ErrCommandNotFound
	for _, dir := range filepath.SplitList(searchPath) {
		if dir == "" { // an empty element is the current folder, in POSIX
			dir = "."
		}
		path := dir + string(filepath.Separator) + name
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, ErrCommandNotFound) && !errors.Is(err, errUnsearchable) { // goes on, as execvp does
			failure = err
		}
	}
	return "", failure
}

// executable returns nil if the file at path may be executed. The kernel may still refuse it: execve(2) also looks
// inside.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || isNotFolder(err):
		return ErrCommandNotFound
	case errors.Is(err, fs.ErrPermission):
		return errUnsearchable
	case err != nil:
		return withoutPath(err)
	case info.IsDir():
		return fmt.Errorf("is a folder: %w", ErrNotExecutable)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", kind(info.Mode()), ErrNotExecutable)
	case !mayExecute(path):
		return ErrNotExecutable
	}
	return nil
}

// Shell runs executable files that are neither ELF nor begin with #!, as
// execvp(3) has it.
const Shell = "/bin/sh"

// Bounds of execve(2), "Interpreter scripts": BINPRM_BUF_SIZE, and the depth of interpreters in
// fs/exec.c.
const (
	maxScriptLine = 255 // bytes of the line, with #!
	maxScripts    = 5
)

// Programs returns the files whose code runs when the file at path is executed:
// for an ELF file, the file itself; for a script, its interpreter, and if that
// is env(1), the program that env would run. The last is the program that
// stays. The error is ErrCommandNotFound or ErrNotExecutable if an interpreter
// cannot be run.
func Programs(path, searchPath string) ([]string, error) {
	var programs []string
	for range maxScripts {
		line, isELF, err := scriptLine(path)
		if err != nil {
			return nil, err
		}
		if isELF {
			return append(programs, path), nil
		}
		// The kernel passes all that follows the interpreter as one argument.
		interpreter, argument, _ := strings.Cut(line, " ")
		if err := executable(interpreter); err != nil {
			return nil, fmt.Errorf("its interpreter %s: %w", interpreter, err)
		}
		path = interpreter
		if filepath.Base(interpreter) != "env" {
			continue
		}
		// env is a program that runs, then the one that it executes. If that cannot be found, env
		// itself is the last.
		if next, err := Command(envCommand(argument), searchPath); err == nil {
			programs = append(programs, interpreter)
			path = next
		}
	}
	return nil, fmt.Errorf("more than %d interpreters lead to one another", maxScripts)
}

// scriptLine reads the interpreter line of a script: the interpreter, and after a blank its argument. A file without
// the line is the shell's, whatever it holds: execvp(3).
func scriptLine(path string) (line string, isELF bool, err error) {
	f, err := openRegular(path)
	if err != nil {
		return "", false, withoutPath(err)
	}
	defer f.Close()
	head := make([]byte, maxScriptLine)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", false, withoutPath(err)
	}
	head = head[:n]
	if bytes.HasPrefix(head, []byte("\x7fELF")) {
		return "", true, nil
	}
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return Shell, false, nil
	}
	rest, _, _ = bytes.Cut(rest, []byte("\n"))
	name, argument, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(string(rest)), "\t", " "), " ")
	if name == "" {
		return Shell, false, nil
	}
	return name + " " + strings.TrimSpace(argument), false, nil
}

// envCommand returns the command among the arguments of env(1): the word after options and assignments; "": there is
// none. Options with an argument of their own, such as -u NAME, are rare in scripts: their argument is taken for the
// command, and not found.
func envCommand(argument string) string {
	for word := range strings.FieldsSeq(argument) {
		if rest, ok := strings.CutPrefix(word, "-S"); ok && rest != "" {
			word = rest
		}
		if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}

// PreloadObstacle returns why the dynamic loader would not preload a glibc library into the program at path, or nil if
// it would. The loader itself would say nothing: the program would run as before, and no stack would be taken over.
func PreloadObstacle(path string) error {
	f, err := openRegular(path)
	if err != nil {
		return withoutPath(err)
	}
	defer f.Close()
	d, err := readDynamic(f)
	switch {
	case err != nil:
		return fmt.Errorf("cannot preload: %w", err)
	case d.interp == "" && !strings.HasPrefix(d.soname, "ld-linux-"): // glibc's loader, run as a program, loads another
		return errors.New("cannot preload: statically linked, no dynamic loader would read LD_PRELOAD")
	case strings.HasPrefix(filepath.Base(d.interp), "ld-musl-"):
		return errors.New("cannot preload: linked with musl, and the library is for glibc")
	}
	info, err := f.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if isPrivileged(path, info) {
		return errors.New("cannot preload: set-uid, set-gid or with capabilities, the dynamic loader would ignore LD_PRELOAD")
	}
	return nil
}

// SharedObject returns nil if the dynamic loader would map the file at path,
// and otherwise an error that says why not.
func SharedObject(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return errors.New(kind(info.Mode()))
	}
	f, err := openRegular(path)
	if err != nil {
		return withoutPath(err)
	}
	defer f.Close()
	_, err = readDynamic(f)
	return err
}

// SearchPath returns PATH, or the default of execvp(3) if there is none.
func SearchPath() string {
	if path, ok := os.LookupEnv("PATH"); ok {
		return path
	}
	return "/bin:/usr/bin"
}
