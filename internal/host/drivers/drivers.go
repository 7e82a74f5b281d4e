// Package drivers knows what the drivers of graphics processors open, for the sandbox of a process that uses one, and
// finds out why a back end has found no device.
//
// It looks at files only. Which back ends there are, and which devices they see, the engine says.
package drivers

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// System is the machine that is looked at.
type System struct {
	Root   string              // in front of every path; "" on a real machine
	Getenv func(string) string // the environment of the process that loads the drivers
	Cache  string              // folder for compiled kernels
	// Open tries to open a device file as a driver does. nil: for reading and writing.
	Open func(path string) error
	// Group returns the name of a file's group and whether its members may write. nil: as the file system says.
	Group func(path string) (name string, writes bool)
}

// Files are the files that drivers open. Paths that do not exist may be among them.
type Files struct {
	Read    []string // files and folders
	Devices []string // device files: reading, writing, ioctl
	Folders []string // in which files are made
}

// A kind is a family of drivers, which a back end loads.
type kind struct {
	devices []string // patterns of device files
	read    []string // files and folders
	folders []string
	vulkan  bool // and the manifests that Vulkan's loader reads
	cache   []string
	card    string // what a machine without a card lacks, for people
	install string // what installs the driver
}

// libraries are the folders of shared libraries and what the dynamic linker and the drivers of most makers read.
var libraries = []string{
	"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/opt", "/nix/store",
	"/run/opengl-driver", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
	"/etc/glvnd", "/usr/share/glvnd", "/proc/devices", "/proc/modules", "/proc/version", "/proc/driver",
	"/proc/sys/kernel", "/sys/bus/pci", "/sys/devices", "/sys/dev", "/sys/class/drm", "/sys/module",
}

var nvidia = []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
	"/dev/nvidia-modeset", "/dev/nvidia-caps/*", "/dev/dxg"}

var dri = []string{"/dev/dri/renderD*", "/dev/dri/card[0-9]*"}

// kinds are the families by the name of ggml's back end, in lower case.
var kinds = map[string]kind{
	"cuda": {devices: nvidia, folders: []string{"/dev/shm"}, cache: []string{"CUDA_CACHE_PATH"},
		read: []string{"/usr/local/cuda", "/usr/share/nvidia", "/etc/nvidia", "/etc/nvidia-container-runtime"},
		card: "/dev/nvidiactl", install: "NVIDIA's driver (Debian: nvidia-driver)"},
	"vulkan": {devices: slices.Concat(dri, nvidia, []string{"/dev/udmabuf"}), vulkan: true,
		read: []string{"/usr/share/libdrm", "/usr/share/drirc.d", "/etc/drirc", "/usr/share/nvidia", "/etc/nvidia"},
		cache: []string{"MESA_SHADER_CACHE_DIR", "MESA_GLSL_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH",
			"CUDA_CACHE_PATH", "AMD_SHADER_DISK_CACHE_PATH"},
		card: "/dev/dri/renderD*", install: "a Vulkan driver (Debian: mesa-vulkan-drivers, or NVIDIA's)"},
	"rocm": {devices: slices.Concat(dri, []string{"/dev/kfd"}), folders: []string{"/dev/shm"},
		read:  []string{"/usr/share/libdrm", "/sys/class/kfd"},
		cache: []string{"AMD_COMGR_CACHE_DIR"},
		card:  "/dev/kfd", install: "AMD's driver and ROCm"},
	"sycl": {devices: dri, read: []string{"/etc/OpenCL", "/usr/share/OpenCL"},
		cache: []string{"NEO_CACHE_DIR", "SYCL_CACHE_DIR"},
		card:  "/dev/dri/renderD*", install: "Intel's compute runtime (Debian: intel-opencl-icd)"},
	"opencl": {devices: slices.Concat(dri, nvidia, []string{"/dev/kgsl-3d0"}),
		read: []string{"/etc/OpenCL", "/usr/share/OpenCL"}, cache: []string{"NEO_CACHE_DIR", "CUDA_CACHE_PATH"},
		card: "/dev/dri/renderD*", install: "an OpenCL driver"},
	"musa": {devices: []string{"/dev/mtgpu*", "/dev/dri/renderD*"}, folders: []string{"/dev/shm"},
		read: []string{"/usr/local/musa"}, card: "/dev/mtgpu*", install: "the driver of Moore Threads"},
}

// kindOf returns the family of a back end; of an unknown one, all that a driver may need.
func kindOf(backend string) (kind, bool) {
	k, ok := kinds[strings.ToLower(backend)]
	if !ok {
		k = kind{devices: slices.Concat(dri, nvidia, []string{"/dev/kfd"})}
	}
	return k, ok
}

// Files returns what the drivers of these back ends open; nothing where there are none.
func (s System) Files(backends []string) (f Files) {
	if len(backends) == 0 {
		return f
	}
	f.Read = append(f.Read, libraries...)
	f.Read = append(f.Read, filepath.SplitList(s.Getenv("LD_LIBRARY_PATH"))...)
	for _, b := range backends {
		k, _ := kindOf(b)
		f.Read = append(f.Read, k.read...)
		f.Folders = append(f.Folders, k.folders...)
		for _, pattern := range k.devices {
			f.Devices = append(f.Devices, s.glob(pattern)...)
		}
		if k.vulkan {
			f.Read = append(f.Read, s.manifestPaths()...)
			for _, m := range s.manifests() {
				if lib := s.manifested(m); filepath.IsAbs(lib) {
					f.Read = append(f.Read, s.around(lib))
				}
			}
		}
		for _, name := range k.cache {
			if dir := s.Getenv(name); dir != "" && dir != s.Cache {
				f.Folders = append(f.Folders, dir)
			}
		}
	}
	if s.Cache != "" {
		f.Folders = append(f.Folders, s.Cache)
	}
	for _, list := range []*[]string{&f.Read, &f.Devices, &f.Folders} {
		slices.Sort(*list)
		*list = slices.DeleteFunc(slices.Compact(*list), func(p string) bool { return !filepath.IsAbs(p) })
	}
	return f
}

// around returns the folder of a library, in which those lie that it needs; the library alone where the folder is the
// root or holds the user's home, which no manifest may open to an engine process.
func (s System) around(lib string) string {
	lib = filepath.Clean(lib)
	dir := filepath.Dir(lib)
	home := filepath.Clean(s.Getenv("HOME"))
	if dir == "/" || strings.HasPrefix(home+"/", dir+"/") {
		return lib
	}
	return dir
}

// CacheEnv returns the environment in which drivers keep compiled kernels in s.Cache: NAME=FOLDER for each variable
// that is not set.
func (s System) CacheEnv() (env []string) {
	if s.Cache == "" {
		return nil
	}
	for _, k := range kinds {
		for _, name := range k.cache {
			if s.Getenv(name) == "" {
				env = append(env, name+"="+s.Cache)
			}
		}
	}
	slices.Sort(env)
	return slices.Compact(env)
}

func (s System) path(p string) string { return s.Root + p }

// glob returns the paths that exist, without Root.
func (s System) glob(pattern string) (found []string) {
	paths, _ := filepath.Glob(s.path(pattern))
	for _, p := range paths {
		found = append(found, strings.TrimPrefix(p, s.Root))
	}
	return found
}

// manifestPaths returns the files and folders in which Vulkan's loader looks for manifests of drivers and layers.
func (s System) manifestPaths() (paths []string) {
	for _, name := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH",
		"VK_ADD_LAYER_PATH", "VK_IMPLICIT_LAYER_PATH", "VK_ADD_IMPLICIT_LAYER_PATH"} {
		paths = append(paths, filepath.SplitList(s.Getenv(name))...)
	}
	for _, dir := range s.dataFolders() {
		paths = append(paths, filepath.Join(dir, "vulkan"))
	}
	return paths
}

// dataFolders returns those of the XDG base directories, and those that the loader is built with.
func (s System) dataFolders() (dirs []string) {
	home := s.Getenv("HOME")
	add := func(list, otherwise string) {
		if list == "" {
			list = otherwise
		}
		dirs = append(dirs, filepath.SplitList(list)...)
	}
	below := func(p string) string {
		if home == "" {
			return ""
		}
		return filepath.Join(home, p)
	}
	add(s.Getenv("XDG_CONFIG_HOME"), below(".config"))
	add(s.Getenv("XDG_CONFIG_DIRS"), "/etc/xdg")
	dirs = append(dirs, "/usr/local/etc", "/etc")
	add(s.Getenv("XDG_DATA_HOME"), below(".local/share"))
	add(s.Getenv("XDG_DATA_DIRS"), "/usr/local/share:/usr/share")
	return slices.DeleteFunc(dirs, func(d string) bool { return !filepath.IsAbs(d) })
}

// driverVariables name the manifests, in place of the folders. The first one that is set counts.
var driverVariables = []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}

// named returns the manifests that the environment names, and the variable; "" where none is set.
func (s System) named() (files []string, variable string) {
	for _, name := range driverVariables {
		if v := s.Getenv(name); v != "" {
			return filepath.SplitList(v), name
		}
	}
	return nil, ""
}

// manifests returns the manifests of drivers that the loader reads.
func (s System) manifests() (files []string) {
	named, variable := s.named()
	if variable == "" {
		for _, dir := range s.dataFolders() {
			named = append(named, filepath.Join(dir, "vulkan/icd.d"))
		}
	}
	named = append(named, filepath.SplitList(s.Getenv("VK_ADD_DRIVER_FILES"))...)
	for _, p := range named {
		if fi, err := os.Stat(s.path(p)); err == nil && fi.IsDir() {
			files = append(files, s.glob(filepath.Join(p, "*.json"))...)
		} else if err == nil {
			files = append(files, p)
		}
	}
	return files
}

// maxManifest is the size of a file that is read as a manifest; those of drivers have some hundred bytes.
const maxManifest = 64 << 10

// manifested returns the path of the library that a manifest names: absolute, or a name that the linker looks for; ""
// where it names none.
func (s System) manifested(manifest string) string {
	file, err := os.Open(s.path(manifest))
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil || len(text) > maxManifest {
		return ""
	}
	return libraryOf(text, manifest)
}

// libraryOf reads a manifest. A path with a slash is relative to its folder.
func libraryOf(text []byte, manifest string) string {
	var m struct {
		ICD struct {
			Library string `json:"library_path"`
		} `json:"ICD"`
	}
	if json.Unmarshal(text, &m) != nil {
		return ""
	}
	lib := m.ICD.Library
	if strings.Contains(lib, "/") && !filepath.IsAbs(lib) {
		lib = filepath.Join(filepath.Dir(manifest), lib)
	}
	return lib
}
