// Package goenv keeps golang-asm's package initialisation from ending the
// process. Its objabi package reads GOARM, GOMIPS, GOMIPS64, GOPPC64 and GOWASM
// from the environment as it is initialised and calls log.Fatalf on values it
// does not know, such as today's GOARM=7,hardfloat. None of them matters to
// amd64 code.
//
// Packages are initialised in the order of their import paths among those whose
// imports are ready (Go specification, "Program initialization"). This one
// imports only os, so it runs before anything of github.com. A test of the
// command holds that.
package goenv

import "os"

func init() {
	for _, name := range []string{"GOARM", "GOMIPS", "GOMIPS64", "GOPPC64", "GOWASM"} {
		os.Unsetenv(name)
	}
}
