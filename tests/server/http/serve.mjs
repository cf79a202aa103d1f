// A server of one model, for tests of clients.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

// Starts `program` with the model in a directory, under a name; returns it and its HTTP address. The server
// ends with this process.
export async function serve(program, name, directory) {
  const server = spawn(program, ['--model', `${name}=${directory}`, '--listen', '127.0.0.1:0',
    '--http', '127.0.0.1:0', '--kv-cache-bytes', '64MiB'], { stdio: ['ignore', 'pipe', 'inherit'] });
  process.on('exit', () => server.kill('SIGKILL'));
  let address;
  for await (const line of createInterface({ input: server.stdout })) {
    address ??= line.match(/HTTP on (\S+)/)?.[1];
    if (!line.includes('listening on')) continue;
    server.stdout.resume();  // so that the pipe of the log does not fill
    return { server, address };
  }
  throw new Error('the server did not start');
}
