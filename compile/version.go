package compile

import "runtime/debug"

// Release is the version of the sources. It goes into every eh_elf; raise it with any change to the generated code, so
// that older files count as out of date.
const Release = "0.12.0"

// module is the path of this module. In a program of another module, the stamped version is not
// ehasm's.
const module = "github.com/ehasm/ehasm"

// Version returns the version that the Go command stamped into a program of this module (a release, or a commit if it
// was built in a checkout), otherwise Release.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Path == module && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return Release
}

// tool is the name of what makes the files, as their notes have it.
func tool() string { return "ehasm " + Version() }
