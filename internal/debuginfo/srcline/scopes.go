package srcline

import "sort"

// This file finds the namespaces and classes around a type, for names such as a::b::type: an entry does not say what
// it is in, so a unit is walked once for all.

// scope is a namespace or class, with the entries below it, from off to end.
type scope struct {
	off, end uint64 // of the entry, and behind its children
	parent   int32  // index of the scope around it, or none
	name     string
}

// maxScopes bounds the nesting of scopes.
const maxScopes = 64

// scopeOf returns the qualifier of the entry at an offset, such as a::b::.
func (u *unit) scopeOf(off uint64) string {
	u.scopeMu.Lock()
	defer u.scopeMu.Unlock()
	if u.scopes == nil {
		u.scopes = u.readScopes()
	}
	// The last scope that begins before the entry; it or one around it holds the entry.
	i := int32(sort.Search(len(u.scopes), func(i int) bool { return u.scopes[i].off >= off })) - 1
	name := ""
	for depth := 0; i >= 0 && depth < maxScopes; depth++ {
		s := &u.scopes[i]
		// Scopes that have ended before the entry are left out; their parents may hold it.
		if off < s.end {
			name = s.name + "::" + name
		}
		i = s.parent
	}
	return name
}

// readScopes collects the scopes of the unit, up to an error.
func (u *unit) readScopes() []scope {
	list := make([]scope, 0, 1) // not nil
	abbrevs := u.sec.table(u)
	named := u.sec.abbrevTable(abbrevKey{u.abbrevOff, u.format, true})
	c := cursor{b: u.data(), off: u.entries}
	here := int32(none)
	var up []int32 // the scope around each open entry
	// Scopes are few; entries in them are skipped, not kept.
	for c.off < u.end && !c.bad {
		start := c.off
		code := c.uleb()
		if code == 0 {
			if len(up) > 0 {
				// The scope ends behind the zero entry that ends its children.
				last := up[len(up)-1]
				if here != last {
					list[here].end = c.off
				}
				here, up = last, up[:len(up)-1]
			}
			continue
		}
		a := abbrevs.find(code)
		if a == nil {
			break
		}
		next := here
		// What a qualified name of C++ is made of.
		switch a.tag {
		case tagNamespace, tagStructType, tagClassType, tagUnionType, tagInterfaceType:
			// Without children the entry holds nothing.
			if !a.children {
				skipEntry(&c, a, u.format)
				break
			}
			name := ""
			for _, attr := range named.find(code).attrs {
				if v := read(&c, attr, u.format); attr.name == atName {
					name = u.str(v)
				}
			}
			if name == "" && a.tag == tagNamespace {
				name = "(anonymous namespace)"
			}
			// Anonymous classes add nothing to a name.
			if name != "" {
				next = int32(len(list))
				list = append(list, scope{off: start, end: u.end, parent: here, name: name})
			}
		default:
			skipEntry(&c, a, u.format)
		}
		if a.children {
			up = append(up, here)
			here = next
		}
	}
	return list
}
