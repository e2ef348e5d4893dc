//go:build linux && amd64

package record

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// region is the memory that recorded programs share with this process: runtime/record/record.h. Any of them
// may write there, with other rights than this process: the region checks what it returns.
type region struct {
	file    *os.File
	socket  int
	token   uint64
	windows uint64
	damaged uint64 // records that no library writes
}

// Layout of the region. TestRegionHeader compares it with record.h.
const (
	regionMagic   = 0x6365726d73616865
	regionVersion = 2
	regionPage    = 4096
	regionLine    = 64
	regionWindow  = 1 << 26
	regionChunk   = 1 << 14
	regionChunks  = regionWindow/regionChunk - 2
	regionFrames  = 1024
	regionUnit    = 1 << 16 // of objects

	regionWindows = 1 << 16 // as many as a region gets

	regionNext     = 40 // offsets of ehr_region
	regionDeclined = 48
	regionStop     = 56
)

type chunkKind uint32

const (
	chunkProcess chunkKind = iota + 1
	chunkStacks
	chunkMaps
)

// regionHeader is struct ehr_region up to what changes.
type regionHeader struct {
	Magic, Version, Token, Period, MaxFrames uint64
}

// windowHeader is struct ehr_window.
type windowHeader struct {
	Next, Refused, Generations uint64
}

// chunkHeader is struct ehr_chunk.
type chunkHeader struct {
	Ready      uint64
	Kind       chunkKind
	PID        uint32
	Process    uint64
	Generation uint64
	Used       uint64
	_          [3]uint64
}

// processHeader is struct ehr_process after its ehr_chunk.
type processHeader struct {
	Comm                             [16]byte
	OwnMalloc, Taken, NoRoom, NoLive uint64
	Objects, EhElfs                  uint64
	_                                [8]uint64
}

// stackHeader is struct ehr_stack up to the addresses.
type stackHeader struct {
	Ready        uint64
	Frames       uint32
	End          int16
	Guessed      uint8
	_            uint8
	Generation   uint64
	Objects      uint64
	Bytes        uint64
	FreedObjects uint64
	FreedBytes   uint64
	Hash         uint64
}

// newRegion makes the memory: a file without a name, which is gone when this process is. No program can
// change its size, which would kill those that have mapped it.
func newRegion(period uint64, maxFrames int) (*region, error) {
	fd, err := unix.MemfdCreate("ehasm-record", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	r := &region{file: os.NewFile(uintptr(fd), "memfd"), windows: regionWindows}
	var random [8]byte
	rand.Read(random[:])
	r.token = binary.LittleEndian.Uint64(random[:]) | 1
	r.socket, err = r.listen()
	if err == nil {
		err = r.fill(period, maxFrames)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.file.Fd()) }

func (r *region) close() {
	r.file.Close()
	unix.Close(r.socket)
}

func (r *region) fill(period uint64, maxFrames int) error {
	var limit unix.Rlimit // a larger file would end this process
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	r.windows = min(regionWindows, (max(limit.Cur, regionPage)-regionPage)/regionWindow)
	if r.windows == 0 {
		return fmt.Errorf("files may have %d bytes, want at least %d: ulimit -f", limit.Cur, regionPage+regionWindow)
	}
	if err := r.file.Truncate(regionPage + int64(r.windows)*regionWindow); err != nil {
		return err
	}
	head, err := binary.Append(nil, binary.LittleEndian, regionHeader{regionMagic, regionVersion, r.token, period,
		uint64(maxFrames)})
	if err != nil {
		return err
	}
	if _, err := r.file.WriteAt(head, 0); err != nil {
		return err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(r.file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("F_ADD_SEALS: %w", err)
	}
	return nil
}

func (r *region) word(offset int64) (uint64, error) {
	var b [8]byte
	_, err := r.file.ReadAt(b[:], offset)
	return binary.LittleEndian.Uint64(b[:]), err
}

// taken returns how many windows programs have taken.
func (r *region) taken() (uint64, error) {
	n, err := r.word(regionNext)
	return min(n, r.windows), err
}

func windowStart(w uint64) int64 { return regionPage + int64(w)*regionWindow }

func (r *region) window(w uint64) (h windowHeader, err error) {
	var b [24]byte
	if _, err = r.file.ReadAt(b[:], windowStart(w)); err == nil {
		_, err = binary.Decode(b[:], binary.LittleEndian, &h)
	}
	h.Next = min(h.Next, regionChunks)
	return h, err
}

// windowsWritten returns the numbers of the windows that programs have written to.
func (r *region) windowsWritten() ([]uint64, error) {
	end, err := r.taken()
	if err != nil {
		return nil, err
	}
	return r.written(windowStart(0), regionWindow, end)
}

// chunksWritten does the same for a window's chunks below a number.
func (r *region) chunksWritten(w, end uint64) ([]uint64, error) {
	return r.written(windowStart(w)+regionPage, regionChunk, end)
}

// written returns the numbers below end of parts of a size that have memory: what a program claims to have written
// costs no time.
func (r *region) written(start, size int64, end uint64) (list []uint64, err error) {
	for i := uint64(0); i < end; i++ {
		offset, err := unix.Seek(int(r.file.Fd()), start+int64(i)*size, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("SEEK_DATA: %w", err)
		}
		if i = uint64((offset - start) / size); i < end {
			list = append(list, i)
		}
	}
	return list, nil
}

// chunk reads a chunk; false: it is not ready, or no library has written it.
func (r *region) chunk(w, i uint64) (h chunkHeader, body []byte, ok bool) {
	b := make([]byte, regionChunk)
	if _, err := r.file.ReadAt(b, windowStart(w)+regionPage+int64(i)*regionChunk); err != nil {
		return h, nil, false
	}
	n, _ := binary.Decode(b, binary.LittleEndian, &h)
	if h.Ready != r.token {
		return h, nil, false
	}
	const mostPID = 1 << 22 // PID_MAX_LIMIT of Linux
	ok = h.PID > 0 && h.PID <= mostPID && h.Process < regionChunks && h.Used <= regionChunk
	switch h.Kind {
	case chunkProcess:
		ok = ok && h.Process == i
	case chunkMaps:
		ok = ok && h.Used >= regionLine
	case chunkStacks:
	default:
		ok = false
	}
	if !ok {
		r.damaged++
		return h, nil, false
	}
	if h.Kind == chunkMaps {
		return h, b[n:h.Used], true
	}
	return h, b[n:], true
}

// mostCount is more than a program can count.
const mostCount = 1 << 48

// process decodes the header of a process, and returns what follows it.
func (r *region) process(body []byte) (h processHeader, rest []byte) {
	n, _ := binary.Decode(body, binary.LittleEndian, &h)
	for _, count := range []*uint64{&h.Taken, &h.NoRoom, &h.NoLive, &h.Objects, &h.EhElfs} {
		if *count > mostCount {
			*count = 0
			r.damaged++
		}
	}
	h.OwnMalloc = min(h.OwnMalloc, 1)
	return h, body[n:]
}

// stacks yields the stacks of a chunk. It skips records still being written; records are aligned to cache lines.
func (r *region) stacks(b []byte, each func(*stackHeader, []uint64)) {
	for len(b) >= regionLine {
		var s stackHeader
		binary.Decode(b, binary.LittleEndian, &s)
		if s.Ready != r.token {
			b = b[regionLine:]
			continue
		}
		size := (regionLine + int64(s.Frames)*word + regionLine - 1) / regionLine * regionLine
		if s.Frames == 0 || s.Frames > regionFrames || size > int64(len(b)) || s.Objects > mostCount*regionUnit/2 ||
			s.Bytes > mostCount {
			r.damaged++
			b = b[regionLine:]
			continue
		}
		s.FreedObjects, s.FreedBytes = min(s.FreedObjects, s.Objects), min(s.FreedBytes, s.Bytes)
		pcs := make([]uint64, s.Frames)
		for i := range pcs {
			pcs[i] = binary.LittleEndian.Uint64(b[regionLine+i*word:])
		}
		each(&s, pcs)
		b = b[size:]
	}
}

// stop makes the programs take no more samples. They still count when sampled objects are freed.
func (r *region) stop() error {
	_, err := r.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1), regionStop)
	return err
}
