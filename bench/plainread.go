package bench

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// plainReader reads a model's file as fast as memory allows: no product of one row can be faster than the weights come.
type plainReader struct {
	data    []byte // mapped
	threads int
	sum     atomic.Uint64 // so that no load is left out
}

// openPlainReader maps the file at path. The caller closes the reader.
func openPlainReader(path string, threads int) (*plainReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &plainReader{data: data, threads: threads}, nil
}

func (r *plainReader) Close() error { return syscall.Munmap(r.data) }

// read loads one word of each cache line, each thread its part from the beginning to the end, and returns how long it
// took.
func (r *plainReader) read() time.Duration {
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range r.threads {
		part := r.data[len(r.data)*i/r.threads : len(r.data)*(i+1)/r.threads]
		wg.Go(func() {
			var sum uint64
			for ; len(part) >= 256; part = part[256:] {
				sum += binary.LittleEndian.Uint64(part) + binary.LittleEndian.Uint64(part[64:]) +
					binary.LittleEndian.Uint64(part[128:]) + binary.LittleEndian.Uint64(part[192:])
			}
			r.sum.Add(sum)
		})
	}
	wg.Wait()
	return time.Since(begin)
}
