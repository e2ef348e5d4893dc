// Package goenv keeps golang-asm's package initialisation from ending the
// process. Its objabi package reads GOOS, GOARCH, GOARM and others from the
// environment as it is initialised, and it calls log.Fatalf on values it does not
// know, such as today's GOARM=7,hardfloat. None of them matters to amd64 code.
//
// Packages are initialised in the order of their import paths among those whose
// imports are ready (Go specification, "Program initialization"). This one
// imports only os, so it runs before anything of github.com. A test of the
// command holds that.
package goenv

import "os"

// hidden are the variables taken out of the environment, and their values.
var hidden = hide("GOOS", "GOARCH", "GOARM", "GO386", "GOMIPS", "GOMIPS64", "GOPPC64", "GOWASM", "GOAMD64")

func hide(names ...string) map[string]string {
	found := map[string]string{}
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			found[name] = value
			os.Unsetenv(name)
		}
	}
	return found
}

// Restore puts the variables back. Package asmgen calls it once golang-asm is
// initialised, so that programs which import it keep their environment.
func Restore() {
	for name, value := range hidden {
		os.Setenv(name, value)
	}
}
