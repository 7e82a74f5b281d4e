package rights

import "golang.org/x/sys/unix"

// Lost stands for descriptors that were sent and that this process could not take: it has as many open as it may, or
// they were more than controlBytes has room for.
const Lost = -1

// controlBytes is the size of a control message of 120 descriptors on every system.
const controlBytes = 512

// parse returns the descriptors of control messages.
func parse(oob []byte, flags int) (fds []int) {
	if len(oob) == 0 && flags&unix.MSG_CTRUNC == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		fds = append(fds, Lost)
	}
	return fds
}
