# brew install --HEAD ./contrib/homebrew/uma-serve.rb
class UmaServe < Formula
  desc "Local LLM serving daemon on llama.cpp that keeps a promised inter-token latency"
  homepage "https://github.com/uma-serve/uma-serve"
  license "MIT"
  head "https://github.com/uma-serve/uma-serve.git", branch: "main"

  depends_on "cmake" => :build
  depends_on "go" => :build
  depends_on "python" => :build

  def install
    system "make", "TAGS=otlp", "TRIMPATH=1"
    ENV["PREFIX"] = prefix
    system "scripts/install.sh"
    bash_completion.install Dir[share/"bash-completion/completions/*"]
    zsh_completion.install Dir[share/"zsh/site-functions/*"]
    fish_completion.install Dir[share/"fish/vendor_completions.d/*"]
  end

  service do
    run [opt_bin/"uma-serve"]
    keep_alive crashed: true
    log_path var/"log/uma-serve.log"
    error_log_path var/"log/uma-serve.log"
  end

  test do
    socket = testpath/"uma.sock"
    pid = spawn bin/"uma-serve", "--socket", socket
    begin
      sleep 1 until socket.exist?
      assert_match "5798", shell_output("#{bin}/uma-cli --socket #{socket} run --temp 0 'What is 4821 + 977?'")
    ensure
      Process.kill "TERM", pid
      Process.wait pid
    end
  end
end
