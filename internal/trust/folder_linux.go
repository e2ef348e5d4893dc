package trust

import "golang.org/x/sys/unix"

// openFolder: a folder that may be searched need not be readable.
const openFolder = unix.O_PATH
