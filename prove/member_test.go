package prove

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/validate/verify"
)

// member is a process that runs images, one after the other: they may fault, loop, or
// write anywhere.
type member struct {
	cmd       *osexec.Cmd
	in        io.WriteCloser
	answer    *os.File
	questions *gob.Encoder
	answers   *gob.Decoder
	output    bytes.Buffer
}

// question is what a member is asked: whether an image does what the table says.
type question struct {
	Image []byte
	Every bool // at every pc, not at samples
}

// tableEnv names the file with the table of a member.
const tableEnv = "PROVE_TABLE"

// memberTicks of 10 ms of processor time are what a member has for an answer.
const memberTicks = 12000

func newMember(table string) (*member, error) {
	m := &member{cmd: osexec.Command(os.Args[0], "-test.run=^TestMember$", "-test.timeout=0")}
	m.cmd.Env = append(os.Environ(), tableEnv+"="+table, "GOMAXPROCS=2")
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	var w *os.File
	var err error
	if m.answer, w, err = os.Pipe(); err != nil {
		return nil, err
	}
	defer w.Close()
	m.cmd.ExtraFiles = []*os.File{w}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	m.questions, m.answers = gob.NewEncoder(m.in), gob.NewDecoder(m.answer)
	return m, m.cmd.Start()
}

// ask returns what is wrong with an image. If err is not nil, the member is of no further use.
func (m *member) ask(q question) error {
	var slow atomic.Bool
	done := make(chan struct{})
	defer close(done)
	go func() {
		from := m.ticks()
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if m.ticks()-from > memberTicks {
				slow.Store(true)
				m.cmd.Process.Kill()
				return
			}
		}
	}()
	err := m.questions.Encode(q)
	var answer string
	if err == nil {
		err = m.answers.Decode(&answer)
	}
	switch {
	case slow.Load():
		return fmt.Errorf("no end after %d s of processor time", memberTicks/100)
	case err != nil:
		m.stop()
		return fmt.Errorf("%w: %.300s", err, m.output.String())
	case answer != "":
		return errors.New(answer)
	}
	return nil
}

// ticks returns the processor time of the process so far, in 10 ms (proc(5)).
func (m *member) ticks() (sum int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, off := range []int{11, 12} { // utime, stime
		n, _ := strconv.Atoi(fields[off])
		sum += n
	}
	return sum
}

func (m *member) stop() {
	m.in.Close()
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.answer.Close()
}

// run runs an image, at every pc or at samples.
func (j *jury) run(image []byte, every bool) error {
	var m *member
	select {
	case m = <-j.idle:
	default:
		var err error
		m, err = newMember(filepath.Join(j.folder, "table"))
		require.NoError(j.t, err)
	}
	if err := m.ask(question{image, every}); err != nil {
		m.stop()
		return err
	}
	j.idle <- m
	return nil
}

// close ends the processes.
func (j *jury) close() {
	for len(j.idle) > 0 {
		(<-j.idle).stop()
	}
}

// TestMember is the process that newMember starts.
func TestMember(t *testing.T) {
	path := os.Getenv(tableEnv)
	if path == "" {
		return // started by newMember
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var table dwarfcfa.Table
	require.NoError(t, gob.NewDecoder(f).Decode(&table))
	questions, answers := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.NewFile(3, "answers"))
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		run := verify.Image
		if q.Every {
			run = verify.Every
		}
		answer := ""
		if result, err := run(q.Image, &table); err != nil {
			answer = err.Error()
		} else if result.Steps == 0 {
			answer = "nothing was compared"
		}
		require.NoError(t, answers.Encode(answer))
	}
}
