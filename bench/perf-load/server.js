// An HTTP server for JSON and, in the same process, a client of it, on loopback.
const http = require('http');
const items = Array.from({length: 200}, (_, i) => ({id: i, name: 'item ' + i, tags: ['a' + i % 7, 'b' + i % 11], price: i / 3}));
const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', part => parts.push(part)).on('end', () => {
    const {query, page} = JSON.parse(Buffer.concat(parts));
    const found = items.filter(item => item.tags.includes(query)).slice(page, page + 20);
    response.writeHead(200, {'content-type': 'application/json'});
    response.end(JSON.stringify({found, total: found.length, page}));
  });
});
const agent = new http.Agent({keepAlive: true, maxSockets: 8});
const ask = (port, i) => new Promise((resolve, reject) => {
  const request = http.request({port, agent, host: '127.0.0.1', method: 'POST', path: '/search?i=' + i}, response => {
    const parts = [];
    response.on('data', part => parts.push(part)).on('end', () => resolve(JSON.parse(Buffer.concat(parts)).total));
  });
  request.on('error', reject).end(JSON.stringify({query: 'a' + i % 7, page: i % 3}));
});
server.listen(0, '127.0.0.1', async () => {
  let n = 0;
  for (let i = 0; i < 1500; i++) {
    const answers = await Promise.all(Array.from({length: 8}, (_, j) => ask(server.address().port, i + j)));
    n += answers.reduce((a, b) => a + b);
  }
  console.log(n);
  agent.destroy();
  server.close();
});
