# SPDX-License-Identifier: Apache-2.0
#
# pair.py SERVER... -- CLIENT...: runs a server, and its client as soon as the server listens. Both have five minutes. The status is
# 0 when both end with 0.
import subprocess
import sys
import time

at = sys.argv.index('--')
end = time.time() + 300


def listens():
    for path in '/proc/net/tcp', '/proc/net/tcp6':
        with open(path) as f:
            if any(line.split()[3] == '0A' for line in f.readlines()[1:]):
                return True
    return False


def finish(process):
    try:
        out, _ = process.communicate(timeout=max(1, end - time.time()))
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        out += b'\nended after five minutes'
    print(' '.join(process.args), 'ended with', process.returncode, '\n' + out.decode(errors='replace'))
    return process.returncode


def start(args):
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


server = start(sys.argv[1:at])
while server.poll() is None and time.time() < end and not listens():
    time.sleep(0.02)
client = start(sys.argv[at + 1:])
statuses = [finish(client), finish(server)]
sys.exit(any(statuses))
