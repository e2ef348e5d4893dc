// Regular expressions, sorting, maps and string building: a report out of a log.
const lines = [];
let seed = 1;
const random = n => (seed = seed * 48271 % 2147483647) % n;
for (let i = 0; i < 120000; i++) {
  lines.push(`10.0.${random(256)}.${random(256)} - - [0${1 + random(9)}/Mar/2024:1${random(10)}:0${random(10)}] "GET /p/${random(500)}?q=${random(9)} HTTP/1.1" ${[200, 200, 304, 404][random(4)]} ${random(90000)}`);
}
const pattern = /^(\S+) \S+ \S+ \[([^\]]+)\] "(\w+) ([^"?]*)(?:\?(\S*))? HTTP\/[\d.]+" (\d{3}) (\d+)$/;
let out = '';
for (let round = 0; round < 6; round++) {
  const pages = new Map(), hosts = {};
  for (const line of lines) {
    const [, host, when, , page, , status, bytes] = pattern.exec(line);
    const entry = pages.get(page) || {page, hits: 0, bytes: 0, by: []};
    entry.hits++, entry.bytes += +bytes, entry.by.push(when.toLowerCase() + status);
    pages.set(page, entry);
    hosts[host] = (hosts[host] || 0) + 1;
  }
  const sorted = [...pages.values()].sort((a, b) => b.hits - a.hits || a.page.localeCompare(b.page));
  for (const {page, hits, bytes, by} of sorted) out += `${page.padEnd(20)} ${hits} ${(bytes / hits).toFixed(1)} ${by.sort()[0]}\n`;
  out += Object.keys(hosts).sort().slice(0, 10).join(',').replace(/\./g, '_');
}
console.log(out.length);
