// Compression and cryptography, in the main thread and in libuv's pool.
const crypto = require('crypto'), zlib = require('zlib'), {promisify} = require('util');
const text = Buffer.from(JSON.stringify(Array.from({length: 30000}, (_, i) => ({name: 'n' + i, sum: i * i}))));
const {privateKey, publicKey} = crypto.generateKeyPairSync('rsa', {modulusLength: 2048});
(async () => {
  let n = 0;
  for (let i = 0; i < 12; i++) {
    const packed = await Promise.all([promisify(zlib.gzip)(text), promisify(zlib.brotliCompress)(text, {params: {[zlib.constants.BROTLI_PARAM_QUALITY]: 5}})]);
    n += zlib.gunzipSync(packed[0]).length + zlib.brotliDecompressSync(packed[1]).length;
    const cipher = crypto.createCipheriv('aes-256-gcm', crypto.scryptSync('secret', 'salt', 32), Buffer.alloc(12, i));
    n += Buffer.concat([cipher.update(text), cipher.final()]).length;
    for (let j = 0; j < 2000; j++) n += crypto.createHash('sha256').update(text.subarray(j, j + 500)).digest('hex').length;
    for (let j = 0; j < 10; j++) {
      const signature = crypto.sign('sha256', text.subarray(0, 1000), privateKey);
      n += crypto.verify('sha256', text.subarray(0, 1000), publicKey, signature);
    }
    n += (await promisify(crypto.pbkdf2)('secret', 'salt', 20000, 32, 'sha512')).length;
  }
  console.log(n);
})();
