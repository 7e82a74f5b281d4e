package drivers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine makes a System of files below a folder: a path that ends with / is a folder, the others have the text behind
// a space.
func machine(t *testing.T, env map[string]string, files ...string) System {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name, text, _ := strings.Cut(f, " ")
		dir := filepath.Join(root, filepath.Dir(name))
		if strings.HasSuffix(name, "/") {
			dir = filepath.Join(root, name)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return System{Root: root, Getenv: func(name string) string { return env[name] }}
}

const lavapipe = `/usr/share/vulkan/icd.d/lvp.json {"ICD":{"library_path":"/opt/mesa/libvulkan_lvp.so"}}`

// TestFiles: what the drivers of each back end open.
func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		backends []string
		env      map[string]string
		files    []string
		devices  []string // all of them
		read     []string // among others
		not      []string
		folders  []string // all of them
	}{
		"no back end": {files: []string{"/dev/nvidia0", "/dev/kfd"}},
		"CUDA": {
			backends: []string{"CUDA"},
			env:      map[string]string{"LD_LIBRARY_PATH": "/cuda/lib64:/more"},
			files: []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm",
				"/dev/nvidia-caps/nvidia-cap1", "/dev/dri/renderD128", "/dev/kfd"},
			devices: []string{"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1",
				"/dev/nvidiactl"},
			read:    []string{"/cuda/lib64", "/more", "/usr/lib", "/proc/driver"},
			not:     []string{"/proc", "/etc", "/usr", "/usr/share/vulkan", "/etc/passwd"},
			folders: []string{"/dev/shm", "/ours"},
		},
		"Vulkan": {
			backends: []string{"Vulkan"},
			env: map[string]string{"HOME": "/home/u", "XDG_DATA_DIRS": "/data:relative",
				"MESA_SHADER_CACHE_DIR": "/mesa"},
			files:   []string{"/dev/dri/renderD128", "/dev/dri/card0", "/dev/dri/by-path/x", "/dev/kfd", lavapipe},
			devices: []string{"/dev/dri/card0", "/dev/dri/renderD128"},
			read: []string{"/home/u/.config/vulkan", "/etc/xdg/vulkan", "/etc/vulkan", "/data/vulkan",
				"/home/u/.local/share/vulkan"},
			not:     []string{"relative/vulkan", "/opt/mesa", "/home/u", "/usr/share/vulkan"},
			folders: []string{"/mesa", "/ours"},
		},
		"a manifest's library": {
			backends: []string{"Vulkan"}, files: []string{lavapipe}, read: []string{"/opt/mesa", "/usr/share/vulkan"},
			folders: []string{"/ours"},
		},
		"named manifests": {
			backends: []string{"Vulkan"},
			env:      map[string]string{"VK_ICD_FILENAMES": "/a/x.json:/b"},
			files: []string{`/a/x.json {"ICD":{"library_path":"../lib/d.so"}}`, "/b/y.json not a manifest",
				lavapipe},
			read: []string{"/a/x.json", "/b", "/lib"}, not: []string{"/opt/mesa"}, folders: []string{"/ours"},
		},
		"libraries in folders that hold more": {
			backends: []string{"Vulkan"},
			env: map[string]string{"HOME": "/home/u", "LD_LIBRARY_PATH": ".:lib:/l",
				"VK_DRIVER_FILES": "/home/u/x.json:/y.json:/z.json:/home/u/d/v.json"},
			files: []string{`/home/u/x.json {"ICD":{"library_path":"./x.so"}}`,
				`/y.json {"ICD":{"library_path":"/y.so"}}`, `/z.json {"ICD":{"library_path":"/home/z.so"}}`,
				`/home/u/d/v.json {"ICD":{"library_path":"./v.so"}}`},
			read: []string{"/home/u/x.so", "/y.so", "/home/z.so", "/home/u/d", "/l"},
			not:  []string{"/", "/home", "/home/u", ".", "lib"}, folders: []string{"/ours"},
		},
		"ROCm": {
			backends: []string{"ROCm"}, files: []string{"/dev/kfd", "/dev/dri/renderD129", "/dev/nvidia0"},
			devices: []string{"/dev/dri/renderD129", "/dev/kfd"}, read: []string{"/sys/class/kfd"},
			folders: []string{"/dev/shm", "/ours"},
		},
		"two": {
			backends: []string{"CUDA", "vulkan"}, files: []string{"/dev/nvidia0", "/dev/dri/renderD128"},
			devices: []string{"/dev/dri/renderD128", "/dev/nvidia0"}, folders: []string{"/dev/shm", "/ours"},
		},
		"an unknown one": {
			backends: []string{"New"}, files: []string{"/dev/kfd", "/dev/nvidia0"},
			devices: []string{"/dev/kfd", "/dev/nvidia0"}, folders: []string{"/ours"},
		},
	} {
		s := machine(t, c.env, c.files...)
		s.Cache = "/ours"
		f := s.Files(c.backends)
		if !slices.Equal(f.Devices, c.devices) || !slices.Equal(f.Folders, c.folders) {
			t.Errorf("%s: devices %q, folders %q; want %q, %q", name, f.Devices, f.Folders, c.devices, c.folders)
		}
		for _, p := range c.read {
			if !slices.Contains(f.Read, p) {
				t.Errorf("%s: %s cannot be read, only %q", name, p, f.Read)
			}
		}
		for _, p := range c.not {
			if slices.Contains(f.Read, p) {
				t.Errorf("%s: %s can be read", name, p)
			}
		}
	}
}

// TestCacheEnv: compiled kernels are kept in our folder, unless the user has named another one.
func TestCacheEnv(t *testing.T) {
	s := machine(t, map[string]string{"CUDA_CACHE_PATH": "/theirs"})
	if got := s.CacheEnv(); got != nil {
		t.Errorf("without a folder: %q", got)
	}
	s.Cache = "/ours"
	got := s.CacheEnv()
	if !slices.Contains(got, "MESA_SHADER_CACHE_DIR=/ours") || !slices.Contains(got, "AMD_COMGR_CACHE_DIR=/ours") ||
		strings.Contains(strings.Join(got, " "), "CUDA_CACHE_PATH") {
		t.Errorf("%q", got)
	}
}

// TestMissing: one reason for each way in which there is no device, with what helps.
func TestMissing(t *testing.T) {
	denied := func(string) error { return fs.ErrPermission }
	opened := func(string) error { return nil }
	for name, c := range map[string]struct {
		backend, said string
		env           map[string]string
		files         []string
		open          func(string) error
		group         string
		want          string
	}{
		"no NVIDIA driver": {backend: "cuda",
			want: "no driver: the library libcuda.so.1 is not installed; it comes with NVIDIA's driver",
			said: "/x/libggml-cuda.so is not used: libcuda.so.1: cannot open shared object file: No such file"},
		"no toolkit": {backend: "cuda", said: "libcublas.so.13: cannot open shared object file: No such file",
			want: "libcublas.so.13 is not installed (CUDA's toolkit"},
		"no loader": {backend: "vulkan", said: "libvulkan.so.1: cannot open shared object file: No such file",
			want: "libvulkan.so.1 is not installed (Debian: apt install libvulkan1)"},
		"built otherwise": {backend: "cuda", files: []string{"/dev/nvidiactl"}, open: opened,
			said: "it is built from another llama.cpp than this uma-serve",
			want: "it is built from another llama.cpp than this uma-serve"},
		"an old driver": {backend: "CUDA",
			said: "failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version",
			want: "the driver is too old: failed to initialize CUDA"},
		"hidden from CUDA": {backend: "CUDA", env: map[string]string{"CUDA_VISIBLE_DEVICES": "-1"},
			want: "CUDA_VISIBLE_DEVICES=-1 hides the devices"},
		"no NVIDIA card": {backend: "CUDA", want: "no card: there is no /dev/nvidiactl (in a container"},
		"no manifest": {backend: "Vulkan", files: []string{"/dev/dri/renderD128"},
			want: "no driver: no folder of Vulkan's loader has a manifest (such as /usr/share/vulkan/icd.d); install"},
		"a named manifest is missing": {backend: "Vulkan", env: map[string]string{"VK_DRIVER_FILES": "/gone.json"},
			files: []string{lavapipe}, want: "no driver: VK_DRIVER_FILES names /gone.json, which does not exist"},
		"the library of a manifest is missing": {backend: "Vulkan", files: []string{lavapipe},
			want: "none of the libraries that the manifests name is there (such as /usr/share/vulkan/icd.d/lvp.json)"},
		"the wrong group": {backend: "Vulkan", open: denied, group: "render",
			files: []string{"/dev/dri/renderD128", "/opt/mesa/libvulkan_lvp.so", lavapipe},
			want:  "no permission for /dev/dri/renderD128: its group is render; sudo usermod -aG render $USER"},
		"no group": {backend: "ROCm", open: denied, group: "root", files: []string{"/dev/kfd"},
			want: "no permission for /dev/kfd, which no group may open"},
		"no card for Vulkan": {backend: "Vulkan", files: []string{"/opt/mesa/libvulkan_lvp.so", lavapipe},
			want: "no card: there is no /dev/dri/renderD* (in a container"},
		"no card that computes": {backend: "Vulkan", open: opened,
			files: []string{"/dev/dri/renderD128", "/usr/share/vulkan/icd.d/x.json " +
				`{"ICD":{"library_path":"libvulkan_x.so"}}`},
			want: "its drivers know no card that computes; vulkaninfo --summary"},
		"a driver without cards": {backend: "CUDA", open: opened, files: []string{"/dev/nvidiactl"},
			want: "its driver knows no card; NVIDIA's driver (Debian: nvidia-driver) may be missing or too old"},
		"another error": {backend: "Vulkan", open: opened, said: "Invalid Vulkan device index",
			files: []string{"/dev/dri/renderD128", "/opt/mesa/libvulkan_lvp.so", lavapipe},
			want:  "Invalid Vulkan device index"},
		"an index of no device": {backend: "vulkan", open: opened, said: "ggml_backend_init returned NULL",
			env:   map[string]string{"GGML_VK_VISIBLE_DEVICES": "7"},
			files: []string{"/opt/mesa/libvulkan_lvp.so", lavapipe},
			want:  "GGML_VK_VISIBLE_DEVICES=7 may name a device that does not exist: ggml_backend_init"},
		"an unknown back end": {backend: "New", want: "it has found no device"},
	} {
		s := machine(t, c.env, c.files...)
		s.Open = c.open
		s.Group = func(string) (string, bool) { return c.group, true }
		if got := s.Missing(c.backend, c.said); !strings.HasPrefix(got, c.want) && !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestOpen: a device file that cannot be opened is told by the error of the system, its group by its name.
func TestOpen(t *testing.T) {
	s := machine(t, nil, "/dev/kfd")
	if err := s.open("/dev/kfd"); err != nil {
		t.Error(err)
	}
	if err := s.open("/dev/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Join(s.Root, "/dev/kfd"), 0o660); err != nil {
		t.Fatal(err)
	}
	if name, writes := s.group("/dev/kfd"); name == "" || !writes {
		t.Errorf("group %q, writes %v", name, writes)
	}
	if name, writes := s.group("/dev/absent"); name != "" || writes {
		t.Errorf("group %q of what is absent, writes %v", name, writes)
	}
}

// FuzzManifest: a manifest is a file of strangers.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"ICD":{"library_path":"../x.so"}}`))
	f.Add([]byte(`{"ICD":{"library_path":"libx.so"}}`))
	f.Add([]byte(`{"ICD":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		lib := libraryOf(text, "/usr/share/vulkan/icd.d/x.json")
		if strings.Contains(lib, "/") && lib != filepath.Clean(lib) && !filepath.IsAbs(lib) {
			t.Errorf("%q", lib)
		}
	})
}
