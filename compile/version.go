package compile

// Release is the version of the sources. It goes into every eh_elf; raise it with any change to the generated code, so
// that older files count as out of date.
const Release = "0.15.0"

// tool is the name of what makes the files, as their notes have it.
const tool = "ehasm " + Release
