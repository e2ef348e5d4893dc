// Package pages maps files and reserves memory if the host can. If it cannot, each
// function returns errors.ErrUnsupported, and callers do without.
package pages
