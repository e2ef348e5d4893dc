// Work for the sampler: most of it in C++, some in code that node makes itself.
const crypto = require('crypto'), zlib = require('zlib');
const data = Buffer.alloc(1 << 20, 'some text to be packed ');
const deep = (n) => (n ? [deep(n - 1), { n }] : []);
let pending = 40;
for (let i = 0; i < 40; i++) zlib.deflate(data, () => { pending--; });
for (let round = 0; round < 60; round++) {
  zlib.gunzipSync(zlib.gzipSync(data));
  crypto.createHash('sha512').update(data).digest('hex');
  JSON.parse(JSON.stringify(deep(300)));
  'abc aab123 '.repeat(5000).match(/(\w+)\s(?:a|b|c)+?(\d{2,})/g);
  Array.from({ length: 20000 }, (_, i) => (i * 7919) % 10007).sort((a, b) => a - b);
  [...data.toString('latin1', 0, 50000)].map((c) => c.charCodeAt(0)).reduce((a, b) => a + b);
}
