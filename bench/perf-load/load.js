// Some work for node: JSON, zlib, regular expressions, sorting.
const zlib = require('zlib');
const text = JSON.stringify(Array.from({length: 20000}, (_, i) => ({name: 'n' + i, sum: i * i, list: [i, i + 1]})));
let n = 0;
for (let i = 0; i < 10; i++) {
  n += JSON.parse(text).length + zlib.gzipSync(text).length;
  n += text.replace(/n(\d+)/g, (m, d) => d + 'n').length;
  n += text.split(',').sort().length;
}
console.log(n);
