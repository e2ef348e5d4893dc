//go:build linux && amd64

package bpfunwind

import (
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// This file allocates memory that both sides see: BPF arrays of one value, mapped here (BPF_F_MMAPABLE), which programs
// read in place. Walks may be in progress while memory is given back; unchanged in program.go finds out which of them
// read something else.

// memory gives out parts of chunks, which programs read. Chunks stay until the end.
type memory struct {
	outer  *ebpf.Map // the chunks by number
	chunks []chunk
	free   []block // by chunk and offset; no two of them touch
}

// chunk is a map of one value, whose bytes are mapped.
type chunk struct {
	inner *ebpf.Map
	bytes []byte
}

// block is a part of a chunk.
type block struct {
	chunk, offset, size uint32
}

// alignment is a multiple of the alignment of records and regions.
const alignment = 32

// chunkSpec describes a chunk.
func chunkSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "chunk", Type: ebpf.Array, KeySize: 4, ValueSize: chunkSize, MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE}
}

// allocate returns a block of at least n bytes, at most a chunk. First fit, from the lowest chunk on. The error says
// that there is no room, or why the kernel gives no more.
func (m *memory) allocate(size int) (block, error) {
	if size > chunkSize {
		return block{}, fmt.Errorf("%d bytes: want at most %d", size, chunkSize)
	}
	n := (uint32(size) + alignment - 1) &^ (alignment - 1)
	i := slices.IndexFunc(m.free, func(b block) bool { return b.size >= n })
	if i < 0 {
		if err := m.grow(); err != nil {
			return block{}, err
		}
		i = len(m.free) - 1
	}
	b := &m.free[i]
	taken := block{b.chunk, b.offset, n}
	b.offset += n
	b.size -= n
	if b.size == 0 {
		m.free = slices.Delete(m.free, i, i+1)
	}
	return taken, nil
}

// grow adds a chunk. Its caller holds Unwinder.mu. The kernel waits for RCU when it adds a map to another one.
func (m *memory) grow() error {
	n := uint32(len(m.chunks))
	if n == maxChunks {
		return fmt.Errorf("no room: %d chunks of tables", n)
	}
	inner, err := ebpf.NewMap(chunkSpec())
	if err != nil {
		return explain(err)
	}
	bytes, err := mapBytes(inner, chunkSize)
	if err == nil {
		err = m.outer.Put(n, inner)
	}
	if err != nil {
		inner.Close()
		return err
	}
	m.chunks = append(m.chunks, chunk{inner, bytes})
	m.free = append(m.free, block{n, 0, chunkSize})
	return nil
}

// release gives a block back. It joins what touches, so that free stays short.
func (m *memory) release(b block) {
	if b.size == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(m.free, b, func(x, y block) int {
		if x.chunk != y.chunk {
			return int(x.chunk) - int(y.chunk)
		}
		return int(x.offset) - int(y.offset)
	})
	touches := func(x, y block) bool { return x.chunk == y.chunk && x.offset+x.size == y.offset }
	if i < len(m.free) && touches(b, m.free[i]) {
		b.size += m.free[i].size
		m.free = slices.Delete(m.free, i, i+1)
	}
	if i > 0 && touches(m.free[i-1], b) {
		m.free[i-1].size += b.size
		return
	}
	m.free = slices.Insert(m.free, i, b)
}

// bytes returns the memory of a block.
func (m *memory) bytes(b block) []byte { return m.chunks[b.chunk].bytes[b.offset:][:b.size:b.size] }

// close closes the chunks.
func (m *memory) close() {
	for _, c := range m.chunks {
		unix.Munmap(c.bytes)
		c.inner.Close()
	}
	*m = memory{}
}

// mapBytes maps the values of an array.
func mapBytes(m *ebpf.Map, size int) ([]byte, error) {
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap of a BPF map", err)
}
