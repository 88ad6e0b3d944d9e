//! A network of three layers in plain arithmetic, trained by Adam. Everything it draws comes from its generator.

use alloc::boxed::Box;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Number of inputs.
pub(super) const INPUTS: usize = 6;
/// Number of classes that it tells apart.
pub(super) const CLASSES: usize = 10;
const HIDDEN: usize = 32;
/// Outputs are computed for this many, so that they fill the processor's registers.
const WIDE: usize = 16;

const RATE: f32 = 3e-4;
const DECAY: f32 = 1e-5;
const KEPT: f32 = 0.6;
const BETA: [f32; 2] = [0.9, 0.999];
const EPSILON: f32 = 1e-8;

/// Input of a sample.
pub(super) type Input = [f32; INPUTS];

/// Weights from `N` inputs to `M` outputs, by input, and the biases.
#[derive(Clone, Copy, Debug)]
struct Layer<const N: usize, const M: usize> {
    weights: [[f32; M]; N],
    biases: [f32; M],
}

impl<const N: usize, const M: usize> Layer<N, M> {
    const ZERO: Self = Self { weights: [[0.0; M]; N], biases: [0.0; M] };

    #[inline(always)]
    fn forward(&self, input: &[f32; N]) -> [f32; M] {
        let mut sum = self.biases;
        // Half of the hidden outputs are 0.
        for (x, weights) in input.iter().zip(&self.weights).filter(|(x, _)| **x != 0.0) {
            for (sum, weight) in sum.iter_mut().zip(weights) {
                *sum += x * weight;
            }
        }
        sum
    }

    /// Adds the gradient of one sample: `error` is that of the outputs.
    fn add(&mut self, input: &[f32; N], error: &[f32; M]) {
        for (x, weights) in input.iter().zip(&mut self.weights).filter(|(x, _)| **x != 0.0) {
            for (weight, error) in weights.iter_mut().zip(error) {
                *weight += x * error;
            }
        }
        for (bias, error) in self.biases.iter_mut().zip(error) {
            *bias += error;
        }
    }

    /// The error of the sums of the layer before, from that of this one: none where its outputs were dropped or not positive.
    fn back(&self, error: &[f32; M], before: &[f32; N]) -> [f32; N] {
        core::array::from_fn(|n| {
            if before[n] <= 0.0 {
                return 0.0;
            }
            // Sums side by side, which the processor adds together.
            let mut sums = [0.0; 8];
            for (weights, errors) in self.weights[n].chunks_exact(8).zip(error.chunks_exact(8)) {
                for ((sum, weight), error) in sums.iter_mut().zip(weights).zip(errors) {
                    *sum += weight * error;
                }
            }
            sums.iter().sum::<f32>() / KEPT
        })
    }

    fn slices(&mut self) -> [&mut [f32]; 2] {
        [self.weights.as_flattened_mut(), &mut self.biases]
    }
}

/// The weights of a network, or as many numbers that go with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    first: Layer<INPUTS, HIDDEN>,
    second: Layer<HIDDEN, HIDDEN>,
    third: Layer<HIDDEN, WIDE>,
}

impl Weights {
    const ZERO: Self = Self { first: Layer::ZERO, second: Layer::ZERO, third: Layer::ZERO };

    /// The likeliest class.
    #[inline]
    pub fn class(&self, input: &Input) -> u8 {
        let hidden = self.first.forward(input).map(|x| x.max(0.0));
        let hidden = self.second.forward(&hidden).map(|x| x.max(0.0));
        let output = self.third.forward(&hidden);
        let mut best = 0;
        for class in 1..CLASSES {
            if output[class] > output[best] {
                best = class;
            }
        }
        best as u8
    }

    /// All values, in slices that are as long for all of a kind.
    fn slices(&mut self) -> [&mut [f32]; 6] {
        let ([a, b], [c, d], [e, f]) = (self.first.slices(), self.second.slices(), self.third.slices());
        [a, b, c, d, e, f]
    }
}

/// The state of its training.
#[derive(Clone, Debug)]
struct Adam {
    gradient: Weights,
    moments: [Weights; 2],
    /// The powers of the two rates of decay so far.
    powers: [f32; 2],
}

/// The network: 6 inputs, two hidden layers of 32, 10 classes.
#[derive(Clone, Debug)]
pub(super) struct Network {
    weights: Box<Weights>,
    adam: Box<Adam>,
    generator: Xoshiro256PlusPlus,
}

impl Network {
    /// A network with weights drawn uniformly, as wide as the number of inputs of each layer asks for.
    pub fn new(mut generator: Xoshiro256PlusPlus) -> Self {
        let mut weights = Box::new(Weights::ZERO);
        let mut draw = |weight: &mut f32, inputs: usize| {
            *weight = (2.0 * share(&mut generator) - 1.0) * libm::sqrtf(6.0 / inputs as f32);
        };
        weights.first.weights.iter_mut().flatten().for_each(|weight| draw(weight, INPUTS));
        weights.second.weights.iter_mut().flatten().for_each(|weight| draw(weight, HIDDEN));
        let outputs = weights.third.weights.iter_mut().flat_map(|row| &mut row[..CLASSES]);
        outputs.for_each(|weight| draw(weight, HIDDEN));
        let adam = Adam { gradient: Weights::ZERO, moments: [Weights::ZERO; 2], powers: [1.0; 2] };
        Self { weights, adam: Box::new(adam), generator }
    }

    /// A number below `bound` drawn from the network's generator.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.generator.next_u64() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// The weights as they are.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Adds the gradient of the cross entropy of a sample, with a part of the hidden outputs dropped at random.
    pub fn learn(&mut self, input: &Input, class: u8) {
        let weights = &*self.weights;
        let first = drop_some(weights.first.forward(input), &mut self.generator);
        let second = drop_some(weights.second.forward(&first), &mut self.generator);
        let output = weights.third.forward(&second);
        let mut error = [0.0; WIDE];
        let highest = output[..CLASSES].iter().fold(f32::MIN, |a, b| a.max(*b));
        let mut sum = 0.0;
        for (error, output) in error[..CLASSES].iter_mut().zip(&output) {
            *error = libm::expf(output - highest);
            sum += *error;
        }
        error[..CLASSES].iter_mut().for_each(|error| *error /= sum);
        error[usize::from(class)] -= 1.0;
        let gradient = &mut self.adam.gradient;
        gradient.third.add(&second, &error);
        let error = weights.third.back(&error, &second);
        gradient.second.add(&first, &error);
        let error = weights.second.back(&error, &first);
        gradient.first.add(input, &error);
    }

    /// Changes the weights by the gradients of the last `count` samples.
    pub fn step(&mut self, count: u32) {
        let adam = &mut *self.adam;
        for (power, beta) in adam.powers.iter_mut().zip(BETA) {
            *power *= beta;
        }
        let unbias = adam.powers.map(|power| 1.0 / (1.0 - power));
        let scale = 1.0 / count.max(1) as f32;
        let [means, squares] = &mut adam.moments;
        let moments = means.slices().into_iter().zip(squares.slices());
        let weights = self.weights.slices().into_iter().zip(adam.gradient.slices());
        for ((weights, gradients), (means, squares)) in weights.zip(moments) {
            let moments = means.iter_mut().zip(squares);
            for ((weight, gradient), (mean, square)) in weights.iter_mut().zip(gradients).zip(moments) {
                let slope = *gradient * scale + DECAY * *weight;
                *mean = BETA[0] * *mean + (1.0 - BETA[0]) * slope;
                *square = BETA[1] * *square + (1.0 - BETA[1]) * slope * slope;
                *weight -= RATE * *mean * unbias[0] / (libm::sqrtf(*square * unbias[1]) + EPSILON);
                *gradient = 0.0;
            }
        }
    }
}

/// A number from 0 to under 1.
fn share(generator: &mut Xoshiro256PlusPlus) -> f32 {
    (generator.next_u64() >> 40) as f32 / (1u32 << 24) as f32
}

/// The positive outputs, of which some are dropped and the others raised to make up for it.
fn drop_some(mut output: [f32; HIDDEN], generator: &mut Xoshiro256PlusPlus) -> [f32; HIDDEN] {
    // A byte decides on each.
    for eight in output.chunks_exact_mut(8) {
        let bytes = generator.next_u64().to_le_bytes();
        for (x, byte) in eight.iter_mut().zip(bytes) {
            *x = if f32::from(byte) < 256.0 * KEPT { x.max(0.0) / KEPT } else { 0.0 };
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn network(seed: u64) -> Network {
        Network::new(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An input whose class is the octant of three of its values.
    fn sample(number: u32) -> (Input, u8) {
        let bits = number.wrapping_mul(2_654_435_761);
        let input: Input = core::array::from_fn(|i| (bits >> (5 * i) & 31) as f32 / 16.0 - 1.0);
        let class = (0..3).map(|i| u8::from(input[i] >= 0.0) << i).sum();
        (input, class)
    }

    #[test]
    fn it_learns_what_can_be_told_apart() {
        let mut network = network(1);
        let right = |network: &Network| {
            (5_000_000..5_001_000).map(sample).filter(|(input, class)| network.weights().class(input) == *class).count()
        };
        let before = right(&network);
        for number in 0..200_000 {
            let (input, class) = sample(number);
            network.learn(&input, class);
            if number % 32 == 31 {
                network.step(32);
            }
        }
        let after = right(&network);
        assert!(before < 300 && after > 850, "{before} and {after} of 1000");
    }

    #[test]
    fn the_same_seed_gives_the_same_weights() {
        let trained = |seed| {
            let mut network = network(seed);
            for number in 0..100 {
                let (input, class) = sample(number);
                network.learn(&input, class);
                network.step(1);
            }
            network
                .weights
                .slices()
                .into_iter()
                .flatten()
                .map(|weight| weight.to_bits())
                .collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(trained(3), trained(3));
        assert_ne!(trained(3), trained(4));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_cross_entropy() {
        // Without dropping: one weight is moved, the loss is compared with what the gradient says.
        let network = network(5);
        let (input, class) = sample(77);
        let loss = |weights: &Weights| {
            let first = weights.first.forward(&input).map(|x| x.max(0.0));
            let second = weights.second.forward(&first).map(|x| x.max(0.0));
            let output = weights.third.forward(&second);
            let sum: f32 = output[..CLASSES].iter().map(|x| libm::expf(*x)).sum();
            libm::logf(sum) - output[usize::from(class)]
        };
        let weights = *network.weights;
        let first = weights.first.forward(&input).map(|x| x.max(0.0));
        let second = weights.second.forward(&first).map(|x| x.max(0.0));
        let output = weights.third.forward(&second);
        let sum: f32 = output[..CLASSES].iter().map(|x| libm::expf(*x)).sum();
        let mut error: [f32; WIDE] = output.map(|x| libm::expf(x) / sum);
        error[CLASSES..].fill(0.0);
        error[usize::from(class)] -= 1.0;
        let error = weights.third.back(&error, &second).map(|x| x * KEPT);
        let error = weights.second.back(&error, &first).map(|x| x * KEPT);
        for (unit, error) in error.iter().enumerate() {
            let mut moved = weights;
            moved.first.biases[unit] += 1e-2;
            let mut back = weights;
            back.first.biases[unit] -= 1e-2;
            let slope = (loss(&moved) - loss(&back)) / 2e-2;
            assert!((slope - error).abs() < 0.02 + 0.05 * slope.abs(), "{unit}: {slope} {error}");
        }
    }
}
