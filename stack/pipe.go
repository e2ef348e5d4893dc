package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// mostHead bounds the headers and notes of a core that comes by a pipe, in bytes. A thread has 3 KB of notes.
const mostHead = 256 << 20

// readHead reads the headers and the notes of a core, and no byte more. They must come before the memory, as the kernel, gdb
// and others write them.
func readHead(r io.Reader) ([]byte, error) {
	var head bytes.Buffer
	until := func(end uint64) error {
		if end > mostHead {
			return fmt.Errorf("the headers and notes of the core reach to byte %d: from a pipe, at most %d are read", end, mostHead)
		}
		if _, err := io.CopyN(&head, r, max(0, int64(end)-int64(head.Len()))); err != nil && err != io.EOF {
			return err
		} else if err == io.EOF {
			return fmt.Errorf("core cut short: %d bytes, and its headers and notes have %d", head.Len(), end)
		}
		return nil
	}
	if err := until(ehdrSize); err != nil {
		if head.Len() > 0 {
			return nil, fmt.Errorf("%w: it has %d bytes", ErrNotCore, head.Len())
		}
		return nil, err
	}
	at, n, err := programHeaders((*[ehdrSize]byte)(head.Bytes()))
	if err != nil {
		return nil, err
	}
	if at > mostHead {
		return nil, fmt.Errorf("%w: its program headers are at offset %d", ErrNotCore, at)
	}
	if n == manyPhdrs {
		if err = until(at + phdrSize); err != nil {
			return nil, err
		}
		if n, err = notesNumber(head.Bytes()[at:], at); err != nil {
			return nil, err
		}
	}
	if err := until(at + n*phdrSize); err != nil {
		return nil, err
	}
	end := uint64(0)
	for h := head.Bytes()[at : at+n*phdrSize]; len(h) > 0; h = h[phdrSize:] {
		le := binary.LittleEndian
		if off, size := le.Uint64(h[8:]), le.Uint64(h[32:]); elf.ProgType(le.Uint32(h)) == elf.PT_NOTE && off+size >= off {
			end = max(end, off+size)
		}
	}
	if err := until(end); err != nil {
		return nil, err
	}
	return head.Bytes(), nil
}

// OpenDump reads the headers and notes of a core from the pipe into which the kernel is writing it, and nothing behind
// them, for Live.TakeDumped. The error wraps ErrNotCore if it is no core.
func OpenDump(r io.Reader) (*Core, error) {
	head, err := readHead(r)
	if err != nil {
		return nil, err
	}
	return coreOf(bytes.NewReader(head), int64(len(head)))
}
