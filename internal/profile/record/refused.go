//go:build linux && amd64

package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Refused is a process with the library that could not open the shared memory, and was not recorded: of another user,
// or in another container.
type Refused struct {
	Comm string `json:"comm"`
	PID  int32  `json:"pid"`
	UID  uint32 `json:"uid"`
}

// Error says what to do.
func (r Refused) Error() string {
	if int(r.UID) == os.Geteuid() {
		return fmt.Sprintf("process %d was not recorded: it ran in another container; run `ehasm heap` in there", r.PID)
	}
	return fmt.Sprintf("process %d was not recorded: it ran as user %d, who has no right to the recorder's memory; run `ehasm heap` as that user", r.PID, r.UID)
}

// listen opens the socket that such processes send a datagram to. It has the region's path as its name, but is no file.
func (r *region) listen() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + r.path()})
	}
	return fd, err
}

// refusals returns the processes that have sent a datagram since the last call. The kernel says which they are.
func (r *region) refusals() (list []Refused) {
	var text struct {
		Token uint64
		Comm  [16]byte
	}
	b, control := make([]byte, binary.Size(text)), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, controls, _, _, err := unix.Recvmsg(r.socket, b, control, 0)
		if err != nil {
			return list
		}
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if _, short := binary.Decode(b[:n], binary.LittleEndian, &text); short != nil || err != nil || len(messages) != 1 ||
			text.Token != r.token {
			continue
		}
		if who, err := unix.ParseUnixCredentials(&messages[0]); err == nil {
			comm, _, _ := bytes.Cut(text.Comm[:], []byte{0})
			list = append(list, Refused{strings.ToValidUTF8(string(comm), "?"), who.Pid, who.Uid})
		}
	}
}
