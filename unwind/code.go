package unwind

import "sync"

// codeParts caches parts of an object's file. Most questions about single instructions are about places near others,
// and opening the file for each of them takes longer than all else in a walk.
type codeParts struct {
	mu    sync.Mutex
	parts map[uint64][]byte // by file offset / partSize; shorter where the file ends, empty where it cannot be read
}

const (
	partSize  = 1 << 10 // bytes; a question is about some 20
	mostParts = 1 << 11 // of an object, 2 MB; then all are dropped
)

// release drops what is cached.
func (c *codeParts) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = nil
}

// readCode reads the object's file from an offset on into b, and returns the number of bytes read: fewer if the file
// ends, 0 if it cannot be opened any more. It is safe for concurrent use.
func (o *Object) readCode(b []byte, offset uint64) int {
	c := &o.file.codeParts
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(b) {
		off := offset + uint64(n)
		part := c.part(o, off/partSize)
		if off %= partSize; off >= uint64(len(part)) {
			break
		}
		n += copy(b[n:], part[off:])
	}
	return n
}

// part returns the part with a number. The caller holds c.mu.
func (c *codeParts) part(o *Object, number uint64) []byte {
	part, known := c.parts[number]
	if known {
		return part
	}
	if image, _, err := o.Open(); err == nil {
		defer image.Close()
		part = make([]byte, partSize)
		n, _ := image.ReadAt(part, int64(number*partSize))
		part = part[:n]
	}
	if c.parts == nil || len(c.parts) >= mostParts {
		c.parts = make(map[uint64][]byte)
	}
	c.parts[number] = part
	return part
}

// codeBefore fills buf with the bytes of the object's file that end at an offset, and returns them: fewer if the file
// begins there, nil if they cannot be read.
func (o *Object) codeBefore(buf []byte, offset uint64) []byte {
	code := buf[:min(offset, uint64(len(buf)))]
	if o.readCode(code, offset-uint64(len(code))) < len(code) {
		return nil
	}
	return code
}
