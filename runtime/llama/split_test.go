//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestSplit compares a model on a device, whole and in parts, with the same model on the processor, in the middle of
// windows that are copied. UMA_TEST_GPU_LAYERS names a device, see testLayers.
//
// Its weights are F32. With quantised weights the processor rounds activations to eight bits, and a device does not.
// Where a value lies between two steps, the last bit of a sum decides, and a small random model makes much of it. With
// Q8_0, a logit in a row with a range of 24 was measured to move by 0.26 with the place of the cells in the pool on the
// processor alone, by 0.63 where only the output was on a device, and by 0.002 where everything was. With F32 the rows
// are less than 0.08 apart, whatever is where.
func TestSplit(t *testing.T) {
	if testLayers(t) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	cfg := ggufgen.TinySWA()
	cfg.Type = ggufgen.F32
	path := model(t, cfg)
	rows := func(layers int) [][]float32 {
		e, err := Open(runtime.Options{ModelPath: path, Threads: testThreads, GPULayers: layers, ContextTokens: 512,
			Batch: 128, MicroBatch: 32, Sequences: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if on := e.Capabilities().Devices > 1; on != (layers != 0) {
			t.Fatalf("--gpu-layers %d: a device computes: %v", layers, on)
		}
		return enginetest.Windows(t, e)
	}
	want := rows(0)
	for _, layers := range []int{1, 2, 3, -1} {
		for i, got := range rows(layers) {
			limit := (slices.Max(want[i]) - slices.Min(want[i])) / 200
			for j := range got {
				if d := got[j] - want[i][j]; !(max(d, -d) <= limit) {
					t.Errorf("--gpu-layers %d, row %d: logit %d is %v, on the processor %v; the limit is %v apart",
						layers, i, j, got[j], want[i][j], limit)
					break
				}
			}
		}
	}
}

// TestManyRows: graphs of 64 rows behind up to 1,088 cells give the processor's logits on a device. With so many rows
// ggml multiplies by other kernels than with eight, and from 513 cells on it asks which parts of the mask are empty.
func TestManyRows(t *testing.T) {
	layers := testLayers(t)
	if layers == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	const rows, graphs = 64, 17
	cfg := ggufgen.Tiny()
	cfg.Type = ggufgen.F32 // see TestSplit
	path := model(t, cfg)
	logits := func(layers int) [][]float32 {
		e := mustOpen(t, runtime.Options{ModelPath: path, GPULayers: layers, ContextTokens: 2048, Batch: rows,
			MicroBatch: rows, Sequences: 1})
		var out [][]float32
		for pos := range runtime.Pos(rows * graphs) {
			last := pos%rows == rows-1
			e.Batch().Add(runtime.Token(3+pos*7%500), pos, 0, last)
			if !last {
				continue
			}
			if err := e.Decode(); err != nil {
				t.Fatalf("%d layers on the device, %d cells: %v", layers, pos+1, err)
			}
			out = append(out, slices.Clone(e.Logits(rows-1)))
			e.Batch().Reset()
		}
		return out
	}
	want := logits(0)
	for i, got := range logits(layers) {
		limit := (slices.Max(want[i]) - slices.Min(want[i])) / 200
		for j := range got {
			if d := got[j] - want[i][j]; !(max(d, -d) <= limit) {
				t.Fatalf("graph %d: logit %d is %v, on the processor %v; the limit is %v apart", i, j, got[j],
					want[i][j], limit)
			}
		}
	}
}

// TestNoKVOffload: the cells of layers on a device are there, or in the host's memory with NoKVOffload.
func TestNoKVOffload(t *testing.T) {
	if testLayers(t) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	for _, host := range []bool{false, true} {
		e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256,
			GPULayers: -1, NoKVOffload: host})
		var here, there uint64
		for _, d := range e.Capabilities().Placed {
			if d.Device == "CPU" {
				here += d.KV
			} else {
				there += d.KV
			}
		}
		if total := uint64(256 * e.Model().KVBytesPerToken); host && (there > 0 || here < total) ||
			!host && there == 0 {
			t.Errorf("NoKVOffload %v: %d bytes of %d are in the host's memory, %d on devices", host, here, total, there)
		}
	}
}

// TestPlaced: layers are on the device that is named, with the bytes that the header tells of them; a device that does
// not exist is an error.
func TestPlaced(t *testing.T) {
	path := model(t, ggufgen.TinyWide())
	o := runtime.Options{ModelPath: path, Threads: testThreads, ContextTokens: 256, Sequences: 2, GPULayers: 1,
		Placed: []runtime.DeviceLayers{{Device: "CUDA99", Layers: 1}}}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), `there is no device "CUDA99"`) {
		t.Errorf("%v", err)
	}
	if testLayers(t) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	header := info.Placed()
	weights := func(n int) (bytes uint64) { // of the last n layers, the output counted
		if bytes = header.Output; n == 0 {
			return 0
		}
		for _, layer := range header.Layers[len(header.Layers)-n+1:] {
			bytes += layer
		}
		return bytes
	}
	devices := Backends().Devices
	for n := 1; n <= len(header.Layers)+1; n++ {
		for first := n; first >= max(n-1, 1); first-- { // all on a device, or the last on a second one
			on := []runtime.DeviceLayers{{Device: devices[0].Name, Layers: first}}
			if first < n {
				if len(devices) < 2 {
					continue // GGML_VK_VISIBLE_DEVICES=0,0 makes two devices of one
				}
				on = append(on, runtime.DeviceLayers{Device: devices[1].Name, Layers: n - first})
			}
			o.GPULayers, o.Placed = n, on
			e := mustOpen(t, o)
			left := n
			for _, d := range on {
				want := weights(left) - weights(left-d.Layers)
				left -= d.Layers
				var got uint64
				for _, p := range e.Capabilities().Placed {
					if p.Device == d.Device {
						got = p.Weights
					}
				}
				if apart := int64(got) - int64(want); max(apart, -apart) > int64(want)/50 {
					t.Errorf("%+v: %d bytes of weights on %s, %d by the header", on, got, d.Device, want)
				}
			}
		}
	}
}
