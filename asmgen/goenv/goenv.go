// Package goenv keeps golang-asm's package initialisation from ending the
// process. Its objabi package reads GOOS, GOARCH, GOARM and others from the
// environment during initialisation, and calls log.Fatalf on unknown values, such
// as today's GOARM=7,hardfloat. None of them matters to amd64 code.
//
// Packages are initialised in the order of their import paths among those whose
// imports are ready (Go specification, "Program initialization"). This one
// imports only os, so it runs before the packages of github.com/twitchyliquid64,
// as long as its own import path sorts before that; a test checks this. Under a
// path that sorts later no package of this module can come first. The command
// does not depend on it: its own entry point, before the Go run-time, writes Hide
// over the first byte of such variables.
package goenv

import (
	"os"
	"strings"
)

// Hide stands for the G of a variable's name that was hidden before the Go run-time began.
const Hide = "\x01"

// Names returns the variables that are hidden from golang-asm.
func Names() []string {
	return []string{"GOOS", "GOARCH", "GOARM", "GO386", "GOMIPS", "GOMIPS64", "GOPPC64", "GOWASM", "GOAMD64"}
}

// hidden holds the variables removed from the environment, with their values.
var hidden = hide()

func hide() map[string]string {
	found := map[string]string{}
	for _, name := range Names() {
		for _, spelled := range []string{name, Hide + strings.TrimPrefix(name, "G")} {
			if value, ok := os.LookupEnv(spelled); ok {
				found[name] = value
				os.Unsetenv(spelled)
			}
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
