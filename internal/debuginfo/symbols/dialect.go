package symbols

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// dialect is the language of a file whose names look like those of C: only what else the file has tells them apart.
type dialect uint8

const (
	ada     dialect = iota + 1 // GNAT: Exp_Dbug of its sources
	haskell                    // GHC: its z-encoding
)

// dialectOf returns the dialect of a file with a table of strings: programs and libraries have names of its run-time
// system. A file of several languages, with one of these, has that one; 0: none.
func dialectOf(table []byte) dialect {
	switch {
	case bytes.Contains(table, []byte("\x00__gnat_")): // with the zero before it: at the beginning of a name
		return ada
	case bytes.Contains(table, []byte("\x00stg_ap_")):
		return haskell
	}
	return 0
}

// Decode returns a function's name as the tools of the file's language write it; "": names are Demangle's matter, or
// this is no name of the language.
func (d dialect) Decode(name string) string {
	plain, entry := strings.CutSuffix(name, pltMark)
	switch d {
	case ada:
		plain = decodeAda(plain)
	case haskell:
		plain = decodeHaskell(plain)
	default:
		return ""
	}
	if entry && plain != "" {
		plain += pltMark
	}
	return plain
}

// operators of Ada, by what follows O in their names.
var operators = map[string]string{"abs": "abs", "and": "and", "mod": "mod", "not": "not", "or": "or", "rem": "rem",
	"xor": "xor", "eq": "=", "ne": "/=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "add": "+", "subtract": "-",
	"concat": "&", "multiply": "*", "divide": "/", "expon": "**"}

// decodeAda decodes pkg__sub, pkg__Oadd, pkg__sub__2 of an overloaded function, sub.3 of a nested one, and pkg__taskTKB,
// as gdb does. Names with other capital letters are the compiler's.
func decodeAda(name string) string {
	name, attribute := strings.TrimPrefix(name, "_ada_"), ""
	for _, s := range [...]struct{ suffix, attribute string }{{"TB", ""}, {"TKB", ""}, {"X", ""}, {"Xn", ""}, {"Xb", ""},
		{"___elabb", "'Elab_Body"}, {"___elabs", "'Elab_Spec"}} {
		if rest, ok := strings.CutSuffix(name, s.suffix); ok {
			name, attribute = rest, s.attribute
			break
		}
	}
	if i := strings.LastIndexAny(name, ".$"); i > 0 && number(name[i+1:]) {
		name = name[:i]
	}
	parts := strings.Split(name, "__")
	// pkg__sub__2: the number tells overloaded functions apart
	if n := len(parts) - 1; n > 1 && slices.ContainsFunc(parts[n:], number) {
		parts = parts[:n]
	}
	for i, part := range parts {
		if sign := operators[strings.TrimPrefix(part, "O")]; sign != "" && part[0] == 'O' && i > 0 {
			parts[i] = strconv.Quote(sign)
		} else if part == "" || part[0] < 'a' || part[0] > 'z' || strings.ToLower(part) != part ||
			strings.ContainsAny(part, ".$@") {
			return ""
		}
	}
	return strings.Join(parts, ".") + attribute
}

// number reports whether s is one.
func number(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// zCodes are the letters that follow z and Z in GHC's encoding.
var zCodes = strings.NewReplacer("zz", "z", "ZZ", "Z", "za", "&", "zb", "|", "zc", "^", "zd", "$", "ze", "=", "zg", ">",
	"zh", "#", "zi", ".", "zl", "<", "zm", "-", "zn", "!", "zp", "+", "zq", "'", "zr", `\`, "zs", "/", "zt", "*",
	"zu", "_", "zv", "%", "ZL", "(", "ZR", ")", "ZM", "[", "ZN", "]", "ZC", ":", "z2cU", ",", "Z0T", "()", "Z2T", "(,)", "Z3T", "(,,)")

// decodeHaskell decodes package_Module_function_info; the program's own modules have no package.
func decodeHaskell(name string) string {
	parts := strings.Split(name, "_")
	last := len(parts) - 1
	switch {
	case last < 2 || parts[last] != "info":
		return ""
	// the code of a constructor: Module_Con_con_info
	case last > 2 && parts[last-1] == "con":
		last--
	}
	if last > 2 {
		parts, last = parts[1:], last-1
	}
	if last != 2 || parts[0] == "" || strings.HasPrefix(name, "stg_") || parts[0][0] < 'A' || parts[0][0] > 'Z' {
		return ""
	}
	return zCodes.Replace(parts[0] + "." + parts[1])
}

// demangleFortran demangles a procedure of a module of gfortran: __module_MOD_procedure. gdb joins them by colons.
func demangleFortran(name string) (string, bool) {
	module, procedure, ok := strings.Cut(strings.TrimPrefix(name, "__"), "_MOD_")
	if !ok || !strings.HasPrefix(name, "__") || module == "" || procedure == "" ||
		strings.ToLower(name) != strings.Replace(name, "_MOD_", "_mod_", 1) {
		return "", false
	}
	return module + "::" + procedure, true
}
