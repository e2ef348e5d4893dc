// Package pages maps files and reserves memory where the host can. Callers have
// another way for when it cannot: each function then returns errors.ErrUnsupported.
package pages
