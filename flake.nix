# nix build · nix run .#uma-cli · nix develop
#
# llama.cpp is the source distribution that engine.lock names, with its sum: a new engine.lock changes nothing here. When
# go.mod or go.sum change, go test ./scripts -run TestVendorHash names the new vendorHash. docs/packages.md
{
  description = "uma-serve: a local LLM serving daemon on llama.cpp";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ];
      forEach = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      # engine.lock has lines KEY=VALUE.
      lock = builtins.listToAttrs (map
        (line: let kv = builtins.match "([a-z_0-9]+)=(.*)" line; in
          { name = builtins.elemAt kv 0; value = builtins.elemAt kv 1; })
        (builtins.filter (line: builtins.isString line && builtins.match "[a-z_0-9]+=.*" line != null)
          (builtins.split "\n" (builtins.readFile ./engine.lock))));
      # Go 1.26 or later: go.mod
      tools = pkgs: [ pkgs.go_1_26 pkgs.cmake pkgs.gnumake pkgs.python3 pkgs.git pkgs.which ];
      # The processors that packages are for (docs/packages.md); the machine's own would be impure.
      march = pkgs:
        if pkgs.stdenv.hostPlatform.isx86_64 then "x86-64-v3"
        else if pkgs.stdenv.hostPlatform.isDarwin then "armv8.4-a+dotprod"
        else "armv8.2-a+dotprod+fp16";
    in
    {
      packages = forEach (pkgs: rec {
        default = uma-serve;
        engine = pkgs.fetchPypi {
          pname = builtins.head (builtins.match "(.*)-[0-9][0-9.]*\\.tar\\.gz" lock.archive);
          version = lock.package_version;
          sha256 = lock.sha256;
        };
        uma-serve = (pkgs.buildGoModule.override { go = pkgs.go_1_26; }) {
          pname = "uma-serve";
          version = self.shortRev or "dev";
          src = self;
          vendorHash = "sha256-z6PvX3J2AQXztEealAkSgGcCB2GF2BkBvDXsLfKvxh8=";
          nativeBuildInputs = tools pkgs;
          dontUseCmakeConfigure = true;
          postPatch = "patchShebangs scripts";
          buildPhase = ''
            export HOME=$TMPDIR
            cp ${engine} $TMPDIR/${lock.archive}
            make build ENGINE=$TMPDIR/${lock.archive} MARCH=${march pkgs} TAGS=otlp TRIMPATH=1 VERSION=${self.shortRev or "dev"}
          '';
          doCheck = false; # make test runs them
          installPhase = "PREFIX=$out scripts/install.sh";
          meta = {
            description = "A local LLM serving daemon on llama.cpp";
            license = pkgs.lib.licenses.mit;
            mainProgram = "uma-serve";
          };
        };
        uma-cli = pkgs.writeShellScriptBin "uma-cli" "exec ${uma-serve}/bin/uma-cli \"$@\"";
      });

      devShells = forEach (pkgs: {
        default = pkgs.mkShell { packages = tools pkgs ++ [ pkgs.gopls pkgs.shellcheck pkgs.nodejs ]; };
      });
    };
}
