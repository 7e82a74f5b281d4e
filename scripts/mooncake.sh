#!/usr/bin/env bash
# scripts/mooncake.sh FOLDER: install Mooncake Store's master, node and Python client for the tests of the fabric
# mooncake://, from the Python package and from Debian's libibverbs1. Prints the variable that the tests want.
set -euo pipefail
folder=${1:?usage: scripts/mooncake.sh FOLDER}
mkdir -p "$folder/bin" "$folder/lib"
folder=$(cd "$folder" && pwd)
package=mooncake-transfer-engine-non-cuda==0.3.13.post1
if [ ! -e "$folder/installed" ]; then
	python3 -m venv "$folder/venv"
	"$folder/venv/bin/pip" install -q "$package"
	home=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mooncake
	for name in mooncake_master mooncake_client; do
		chmod +x "$home/$name"
		ln -sf "$home/$name" "$folder/bin/$name"
	done
	ln -sf "$home"/*.so "$folder/lib/"
	# The libraries are unpacked beside the package: nothing is installed on the machine.
	(
		cd "$folder"
		debs=(libibverbs1 libnl-3-200 libnl-route-3-200)
		apt-get download -q "${debs[@]}" >&2 || { apt-get update -q >&2 && apt-get download -q "${debs[@]}" >&2; }
		for deb in ./*.deb; do dpkg -x "$deb" debs; done
		find debs -name '*.so*' -exec cp -a {} lib/ ';'
		rm -rf debs ./*.deb
	)
	touch "$folder/installed"
fi
echo "UMA_MOONCAKE=$folder"
