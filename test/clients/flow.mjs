// Two pictures of known pixels, which pictures_test.go compares.
const PICTURES = `import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
class Picture:
    def __init__(self, width, height):
        self.size = width, height
    def _repr_png_(self):
        width, height = self.size
        rows = b"".join(b"\\0" + bytes(v for x in range(width) for v in (x * 7 % 256, y * 5 % 256, (x + y) % 256)) for y in range(height))
        return (b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
display(Picture(40, 30))
Picture(300, 200)`;

// What every TypeScript client does with the server. A client gives connect,
// which returns {list, call, close, handles}; what it saw is printed as one JSON
// object, which clients_test.go judges. A client that handles has no connection:
// it gives back the session's id with every call.
export async function converse(connect) {
  const [, , server, mark] = process.argv;
  const seen = {};
  const client = await connect(server);
  const call = (name, args, options) => {
    if (client.handles && seen.first) args.session_id = seen.first.session_id;
    return client.call({ name, arguments: args }, options);
  };
  const run = (code, options = {}, timeout_s = 30) => call("execute_python", { code, timeout_s }, options);

  // The client validates structuredContent by the outputSchema that it has listed.
  const { tools } = await client.list();
  seen.tools = tools.map((tool) => tool.name);
  seen.schema = tools.every((tool) => tool.outputSchema?.type === "object");

  seen.first = (await run("x = 41")).structuredContent;
  seen.second = (await run("x + 1")).structuredContent;
  seen.failed = (await run("1 / 0")).structuredContent;

  await run("_ = open('n.txt', 'w').write('3\\n1\\n2\\n')");
  const command = "sort n.txt | head -2 && wc -l n.txt";
  seen.command = (await call("execute_cli", { command }, {})).structuredContent;

  const { content } = await run(PICTURES);
  seen.pictures = content.filter(({ type }) => type === "image").map(({ data, mimeType }) => ({ data, mimeType }));

  const pieces = [];
  const talk = "import time\nfor i in range(5):\n    print('step', i, flush=True)\n    time.sleep(0.3)\n";
  const { structuredContent: spoken } = await run(talk, {
    onprogress: ({ progress, message }) => pieces.push({ progress, message: message ?? "" }),
  });
  seen.progress = pieces.slice(); // what came before the result
  seen.spoken = spoken;

  const busy = "print('busy', flush=True)\nwhile True:\n    pass\n";
  const abort = new AbortController();
  setTimeout(() => abort.abort("enough"), 1000);
  seen.abort = await interrupted(() => run(busy, { signal: abort.signal }, 60));
  seen.timeout = await interrupted(() => run(busy, { timeout: 1000 }, 60));

  seen.marked = (await run(`import subprocess\nchild = subprocess.Popen(['sleep', '${mark}'])\nchild.poll()`)).structuredContent;
  const closing = Date.now();
  await client.close();
  seen.close_ms = Date.now() - closing;
  console.log(JSON.stringify(seen));

  // interrupted: the call fails in the client; how long does the next one wait?
  async function interrupted(call) {
    const outcome = { error: "" };
    try {
      await call();
    } catch (error) {
      outcome.error = String(error?.message ?? error);
    }
    const since = Date.now();
    outcome.next = (await run("x")).structuredContent;
    outcome.next_ms = Date.now() - since;
    return outcome;
  }
}

// overHTTP reports whether server is no command but an address, and how it is
// spoken to: with the token of the environment.
export const overHTTP = (server) => server.startsWith("http");
export const options = () => ({ requestInit: { headers: { Authorization: `Bearer ${process.env.TOKEN}` } } });
