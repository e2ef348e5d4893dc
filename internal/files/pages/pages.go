// Package pages maps files and reserves memory if the host can. If it cannot, each function returns
// errors.ErrUnsupported, and callers do without.
//
// Such memory is none of Go's heap: the garbage collector neither scans it nor counts it, and the kernel takes it back
// at once. In return callers unmap it, and a slice of it that is used afterwards faults.
package pages
